"""The whole update in one pass; square root and division of every element are correctly rounded."""

from functools import partial
from typing import Any

import torch

from kpop_kernels.backends.triton import adam8 as product
from tests.machine_code.triton_blocks import NUMEL, affine, case, dynamic, twice

# 3 divisions of blocks, and of each of 8 elements one division and one square root.
DIVISIONS = {"v_fma_f32": 49, "v_fmac_f32_e32": 22}


def launch(dtype: torch.dtype = torch.float32, *, lr: float = 0.1, step: float = 7, **options: Any) -> None:
    """Update a parameter."""
    scalars = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1, "seed": 0, "stream": 0}
    product.adam8_(
        torch.zeros(NUMEL, dtype=dtype),
        torch.zeros(NUMEL, dtype=dtype),
        *affine(256),
        *dynamic(256),
        lr=torch.tensor(lr),
        step=torch.tensor(step),
        **scalars | options,
    )


def launch_list() -> None:
    """Update two parameters."""
    scalars = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1, "seed": 0}
    product.adam8_foreach_(
        *twice(torch.zeros(NUMEL), torch.zeros(NUMEL), *affine(256), *dynamic(256)),
        lr=torch.tensor(0.1),
        step=[torch.tensor(7)] * 2,
        stream=[0, 1],
        offset=[0, 0],
        found_inf=[None] * 2,
        **scalars,
    )


CASES = (
    *(
        case(
            "adam8_kernel",
            str(dtype).removeprefix("torch."),
            partial(launch, dtype),
            nvidia={"LDG.128": 2 * wide + 2, "STG.128": wide + 2},
            amd={"buffer_load_dwordx4": wide, "buffer_store_dwordx4": wide // 2, **DIVISIONS},
            max_registers=136,
        )
        for dtype, wide in ((torch.float32, 4), (torch.bfloat16, 2))
    ),
    case(
        "adam8_list_kernel",
        "float32",
        launch_list,
        nvidia={"LDG.128": 10, "STG.128": 6},
        amd={"buffer_load_dwordx4": 4, "buffer_store_dwordx4": 2, **DIVISIONS},
        max_registers=136,
    ),
)
