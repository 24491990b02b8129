"""Adam at the end of a product: both moments are read once and written once, N is written, and nothing else."""

from functools import partial

import torch

from kpop_kernels.backends.triton import adam_product
from kpop_kernels.backends.triton.kron_rotate import left_product, right_product
from kpop_kernels.tuning import LARGE_TILES, SMALL_TILES, RotationConfig
from tests.machine_code.triton_products import MANY, ONE, case, zeros

SETTINGS = adam_product.AdamSettings(0.9, 0.95, 1e-8, None, False)


def launch(
    config: RotationConfig,
    shapes: tuple[tuple[int, int], ...] = ONE,
    *,
    left: bool = False,
    dtype: torch.dtype = torch.float32,
    settings: adam_product.AdamSettings = SETTINGS,
) -> None:
    """Rotate gradients on one side into Adam."""
    products = []
    for m, n in shapes:
        ends = [zeros(m, n) for _ in range(3)]
        X, scalars = zeros(m, n, dtype=dtype), zeros(5)
        if left:
            products.append(left_product(zeros(m, m), X, *ends, scalars=scalars))
        else:
            products.append(right_product(X, zeros(n, n), *ends, scalars=scalars))
    adam_product.adam_of_products(products, "both", settings, config, a_transposed=left)


# A thread has 64 elements of the tile, 16 accesses of a tensor: both moments are loaded; they and N are stored.
LARGE_END = {"LDG.128": 2 * 16, "STG": 3 * 16, "STG.128": 3 * 16}
SCALARS = 3
"""Loads of what the item's step depends on: both corrections and found_inf."""

CASES = (
    case(
        "adam_product_kernel",
        "XQ, 128×128",
        partial(launch, LARGE_TILES[4]),
        dot="_f32",
        nvidia=LARGE_END | {"LDG": 2 * 16 + SCALARS},
        amd={"v_mfma_f32_32x32x2_f32": 64, "buffer_store_dwordx4": 24},
    ),
    case(
        "adam_product_kernel",
        "XQ, 128×128, table",
        partial(launch, LARGE_TILES[4], MANY),
        dot="_f32",
        nvidia=LARGE_END,
        table=True,
        amd={"v_mfma_f32_32x32x2_f32": 64, "global_store_dwordx4": 24},
    ),
    case(
        "adam_product_kernel",
        "bfloat16 gradient, QᵀX, 64×64",
        partial(launch, SMALL_TILES[4], left=True, dtype=torch.bfloat16),
        dot="_f32",
        nvidia={"LDG.128": 8, "LDG": 8 + SCALARS, "STG": 12, "STG.128": 12},
        amd={"v_mfma_f32_32x32x2_f32": 48, "buffer_store_dwordx4": 6},
    ),
)
