"""Products of rotations: their end is one store of every element."""

from functools import partial

import torch

from kpop_kernels.backends.triton import kron_rotate as rotations
from kpop_kernels.tuning import LARGE_TILES, SMALL_TILES, RotationConfig
from tests.machine_code.triton_products import MANY, ONE, case, zeros

FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16


def launch(
    dtype: torch.dtype,
    config: RotationConfig,
    shapes: tuple[tuple[int, int], ...] = ONE,
    *,
    left: bool = True,
    inverse: bool = False,
    square: str = "",
) -> None:
    """Multiply matrices by factors on one side."""
    products = []
    for m, n in shapes:
        X, out = zeros(m, n, dtype=dtype), zeros(m, n, dtype=dtype)
        if left:
            products.append(rotations.left_product(zeros(m, m, dtype=dtype), X, out))
        else:
            products.append(rotations.right_product(X, zeros(n, n, dtype=dtype), out))
    rotations.multiply(
        products,
        a_transposed=left and not inverse,
        b_transposed=inverse and not left,
        square=square,
        config=config,
    )


CASES = (
    case(
        "product_kernel",
        "float32, QᵀX, 128×128",
        partial(launch, FLOAT32, LARGE_TILES[4]),
        dot="_f32",
        nvidia={"LDG": 0, "STG": 16, "STG.128": 16},
        amd={"v_mfma_f32_32x32x2_f32": 64, "buffer_store_dwordx4": 8},
    ),
    case(
        "product_kernel",
        "float32, XQᵀ, 128×128",
        partial(launch, FLOAT32, LARGE_TILES[4], left=False, inverse=True),
        dot="_f32",
        nvidia={"LDG": 0, "STG": 16, "STG.128": 16},
        amd={"v_mfma_f32_32x32x2_f32": 64, "buffer_store_dwordx4": 8},
    ),
    case(
        "product_kernel",
        "float32, XQ, 64×64, table",
        partial(launch, FLOAT32, SMALL_TILES[4], MANY, left=False),
        dot="_f32",
        nvidia={"LDG.128": 0, "STG": 4, "STG.128": 4},
        table=True,
        amd={"v_mfma_f32_32x32x2_f32": 48, "global_store_dwordx4": 4},
    ),
    case(
        "product_kernel",
        "bfloat16, QᵀX, 128×128",
        partial(launch, BFLOAT16, LARGE_TILES[2]),
        dot="_bf16",
        nvidia={"LDG": 0, "STG": 8, "STG.128": 8},
        amd={"v_mfma_f32_32x32x8_bf16": 48, "buffer_store_dwordx2": 8},
    ),
    case(
        "product_kernel",
        "float32, X(P∘P)ᵀ, 128×128",
        partial(launch, FLOAT32, LARGE_TILES[4], left=False, inverse=True, square="b"),
        dot="_f32",
        nvidia={"LDG": 0, "STG": 16, "STG.128": 16},
        amd={"v_mfma_f32_32x32x2_f32": 64, "buffer_store_dwordx4": 8},
    ),
)
