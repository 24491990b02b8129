"""Adam with 8-bit moments at the end of a product: codes are read once and written once, N is written."""

from functools import partial

import torch

from kpop_kernels.backends.triton import adam8_product
from kpop_kernels.backends.triton.kron_rotate import left_product, right_product
from tests.machine_code.triton_products import case, zeros

NUMBERS = (0.9, 0.1, 0.95, 0.05, 1e-8, 5.0)


def launch(*, left: bool = False, dtype: torch.dtype = torch.float32) -> None:
    """Rotate a gradient on one side into Adam."""
    m, n = 256, 512
    codes, blocks = [zeros(m, n, dtype=torch.uint8) for _ in range(2)], m * n // 256
    extra = (
        zeros(blocks),
        zeros(blocks, dtype=torch.uint8),
        zeros(blocks),
        zeros(2, dtype=torch.float64),
        3,
        0,
    )
    X, ends = zeros(m, n, dtype=dtype), (*codes, zeros(m, n))
    if left:
        product = left_product(zeros(m, m), X, *ends, scalars=zeros(8), extra=extra)
    else:
        product = right_product(X, zeros(n, n), *ends, scalars=zeros(8), extra=extra)
    adam8_product.adam8_of_products([product], NUMBERS, 0, a_transposed=left, maximize=False)


CASES = tuple(
    case(
        "adam8_product_kernel",
        variant,
        partial(launch, **options),
        dot="_f32",
        nvidia={"LDG.128": 8, "LDG.U8": 4, "STG.128": 24, "STG.U8": 2, "STG": 30},
        table=True,
        amd={"v_mfma_f32_32x32x2_f32": 64, "global_store_dwordx4": 12},
    )
    for variant, options in (
        ("XQ, 64×256", {}),
        ("bfloat16 gradient, QᵀX, 64×256", {"left": True, "dtype": torch.bfloat16}),
    )
)
