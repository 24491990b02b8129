"""The pass over 8-bit blocks between the rotations; square root and division are correctly rounded."""

from functools import partial

import torch

from kpop_kernels.backends.triton import kron_adam8
from tests.machine_code.triton_blocks import NUMEL, affine, case, dynamic
from tests.machine_code.triton_products import zeros


def launch(*, original: bool = False) -> None:
    """Take a step without factors, whose only launches are passes over elements."""
    param, grad = zeros(1, NUMEL), zeros(1, NUMEL)
    blocks = [
        block.view(1, -1) if block.numel() == NUMEL else block for block in (*affine(256), *dynamic(256))
    ]
    kron_adam8.kron_adam8_foreach_(
        [param],
        [grad],
        *([block] for block in blocks),
        [None],
        [None],
        lr=torch.tensor(0.1),
        beta1=0.9,
        beta2=0.95,
        eps=1e-8,
        weight_decay=0.1,
        step=[torch.tensor(7.0)],
        seed=0,
        stream=[0],
        offset=[0],
        found_inf=[None],
        exp_avg_basis="original" if original else "rotated",
    )


CASES = (
    case(
        "direction8_kernel",
        "both moments",
        partial(launch),
        nvidia={"LDG.128": 2, "STG.128": 2},
        amd={},
        max_registers=96,
        max_shared=8192,
    ),
    case(
        "direction8_kernel",
        "first moment averaged elsewhere",
        partial(launch, original=True),
        nvidia={"LDG.128": 4, "STG.128": 2},
        amd={},
        max_registers=96,
        max_shared=8192,
    ),
)
