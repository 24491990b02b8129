"""The update at the end of the last product: the weight is read once and written once."""

from functools import partial

import torch

from kpop_kernels.backends.triton import weight_update
from kpop_kernels.backends.triton.kron_rotate import right_product
from kpop_kernels.tuning import LARGE_TILES, SMALL_TILES, RotationConfig
from tests.machine_code.triton_products import MANY, ONE, case, elementwise, zeros


def launch(
    config: RotationConfig, shapes: tuple[tuple[int, int], ...] = ONE, *, dtype: torch.dtype = torch.float32
) -> None:
    """Rotate back on the right into weights."""
    products = [
        right_product(zeros(m, n), zeros(n, n), zeros(m, n, dtype=dtype), scalars=zeros(5)) for m, n in shapes
    ]
    weight_update.update(products, right_transposed=True, config=config)


def launch_plain(dtype: torch.dtype) -> None:
    """Update a weight along a matrix."""
    weight_update.update_without_product([(zeros(64, 64, dtype=dtype), zeros(64, 64, dtype=dtype), zeros(5))])


SCALARS = 3
"""Loads of what the item's step depends on: decay, rate and found_inf."""

CASES = (
    case(
        "update_kernel",
        "float32, XQᵀ, 128×128",
        partial(launch, LARGE_TILES[4]),
        dot="_f32",
        nvidia={"LDG.128": 16, "LDG": 16 + SCALARS, "STG": 16, "STG.128": 16},
        amd={"v_mfma_f32_32x32x2_f32": 64, "buffer_store_dwordx4": 8},
    ),
    case(
        "update_kernel",
        "bfloat16, XQᵀ, 128×128, table",
        partial(launch, LARGE_TILES[4], MANY, dtype=torch.bfloat16),
        dot="_f32",
        nvidia={"LDG.128": 8, "STG": 8, "STG.128": 8},
        table=True,
        amd={"v_mfma_f32_32x32x2_f32": 64, "global_store_dwordx2": 8},
    ),
    case(
        "update_kernel",
        "bfloat16, XQᵀ, 64×64",
        partial(launch, SMALL_TILES[4], dtype=torch.bfloat16),
        dot="_f32",
        nvidia={"LDG.128": 2, "LDG": 2 + SCALARS, "STG": 2, "STG.128": 2},
        amd={"v_mfma_f32_32x32x2_f32": 48, "buffer_store_dwordx2": 4},
    ),
    elementwise(
        "plain_update_kernel",
        "bfloat16",
        partial(launch_plain, torch.bfloat16),
        {"LDG.128": 2, "STG": 1, "STG.128": 1},
        {"buffer_store_dwordx2": 1},
    ),
)
