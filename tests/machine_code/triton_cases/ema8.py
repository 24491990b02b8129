"""Averages in one pass: old codes and x in, new codes and the float32 average out."""

import torch

from kpop_kernels.backends.triton import ema8 as product
from tests.machine_code.triton_blocks import NUMEL, affine, case, dynamic, times, twice


def _ema_int8() -> None:
    x, mean, step = torch.zeros(NUMEL), torch.zeros(NUMEL), torch.tensor(1)
    product.ema_int8_(*affine(256), x, beta=0.9, seed=0, step=step, stream=0, out=mean)


def _ema_sq_dynamic8() -> None:
    x = torch.zeros(NUMEL, dtype=torch.bfloat16)
    product.ema_sq_dynamic8_(*dynamic(256), x, beta=0.9, out=torch.zeros(NUMEL))


def _ema_int8_list() -> None:
    x, mean = twice(torch.zeros(NUMEL), torch.zeros(NUMEL))
    random = {"seed": 0, "step": [torch.tensor(1)] * 2, "stream": [0, 1], "offset": [0, 0]}
    product.ema_int8_foreach_(*twice(*affine(256)), x, beta=0.9, **random, out=mean)


def _ema_sq_dynamic8_list() -> None:
    x, mean = twice(torch.zeros(NUMEL, dtype=torch.bfloat16), torch.zeros(NUMEL))
    product.ema_sq_dynamic8_foreach_(*twice(*dynamic(256)), x, beta=0.9, out=mean)


CASES = (
    case(
        "ema_int8_kernel",
        "float32",
        _ema_int8,
        nvidia={"LDG.128": 5, "LDG": 8, "STG.128": 5, "STG": 7},
        amd={
            "buffer_load_dwordx4": 2,
            "buffer_load_dwordx2": 1,
            "buffer_store_dwordx4": 2,
            "buffer_store_dwordx2": 1,
            **times(2),
        },
        max_registers=96,
    ),
    case(
        "ema_sq_dynamic8_kernel",
        "bfloat16",
        _ema_sq_dynamic8,
        nvidia={"LDG.128": 3, "LDG": 36, "STG.128": 5, "STG": 6},
        amd={
            "buffer_load_dwordx4": 1,
            "buffer_load_dwordx2": 1,
            "buffer_store_dwordx4": 2,
            "buffer_store_dwordx2": 1,
            **times(1),
        },
        max_registers=80,
    ),
    case(
        "ema_int8_list_kernel",
        "float32",
        _ema_int8_list,
        nvidia={"LDG.128": 5, "STG.128": 5, "STG": 7},
        amd={"buffer_load_dwordx4": 2, "buffer_store_dwordx4": 2, "buffer_store_dwordx2": 1, **times(2)},
        max_registers=96,
    ),
    case(
        "ema_sq_dynamic8_list_kernel",
        "bfloat16",
        _ema_sq_dynamic8_list,
        nvidia={"LDG.128": 3, "STG.128": 5, "STG": 6},
        amd={"buffer_load_dwordx4": 1, "buffer_store_dwordx4": 2, "buffer_store_dwordx2": 1, **times(1)},
        max_registers=80,
    ),
)
