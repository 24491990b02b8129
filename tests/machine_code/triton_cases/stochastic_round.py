"""Integers alone: one call of the generator for eight elements, no floating-point arithmetic."""

import torch

from kpop_kernels.backends.triton.stochastic_round import stochastic_round_bf16
from tests.machine_code.triton_blocks import NUMEL, case, times


def _launch() -> None:
    out = torch.zeros(NUMEL, dtype=torch.bfloat16)
    stochastic_round_bf16(torch.zeros(NUMEL), seed=0, step=torch.tensor(1), stream=0, out=out)


CASES = (
    case(
        "stochastic_round_bf16_kernel",
        "float32",
        _launch,
        nvidia={"LDG.128": 4, "LDG": 5, "STG.128": 2, "STG": 2, "FMUL": 0, "FADD": 0, "SHFL": 0},
        amd={"buffer_load_dwordx4": 2, "buffer_store_dwordx4": 1, **times(0)},
        max_registers=48,
        max_shared=0,
    ),
)
