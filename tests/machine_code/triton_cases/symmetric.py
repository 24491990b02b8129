"""Symmetric products: each tile above the diagonal is stored twice."""

from dataclasses import replace

import torch

from kpop_kernels.backends.triton import symmetric as product
from kpop_kernels.tuning import LARGE, SMALL, ProductConfig
from tests.machine_code.triton_products import IN_SHARED, case

ORDER = 528
"""No multiple of a tile: accesses are masked."""


def launch(
    dtype: torch.dtype,
    config: ProductConfig,
    n: int = ORDER,
    *,
    side: str = "left",
    alpha: float = 0.1,
    beta: float = 0.9,
) -> None:
    """Average a covariance."""
    S, X = torch.empty(2, n, n, dtype=dtype), torch.empty(2, n, n, dtype=dtype)
    product.syrk(X, C=S, alpha=alpha, beta=beta, side=side, out=S, config=config)


def variants(dtype, config, stores, **options):
    """Yield a configuration with and without masks; a thread stores its part of a tile twice."""
    name = f"{str(dtype).removeprefix('torch.')}, {config.block}"
    counts = {"STG.128": stores, "LDG.128": stores // 2}
    for n, suffix in ((512, ""), (ORDER, " masked")):
        yield case(
            "symmetric_product_kernel",
            name + suffix,
            lambda n=n: launch(dtype, config, n),
            nvidia=counts,
            **options,
        )


CASES = (
    *variants(torch.float16, SMALL[2], 8, dot="_f16", max_registers={"sm_90": 96}),
    *variants(torch.float16, LARGE[2], 16, dot="_f16", max_registers={"sm_80": 224, "sm_90": 168}),
    *variants(torch.bfloat16, LARGE[2], 16, dot="_bf16", max_registers={"sm_80": 224, "sm_90": 168}),
    *variants(torch.float32, SMALL[4], 8, dot="_f32", max_registers={"sm_80": 192, "sm_90": 128}),
    *variants(torch.float32, LARGE[4], 32, dot="_f32", targets=IN_SHARED, max_registers={"sm_90": 240}),
    case(
        "symmetric_product_kernel",
        "float32, 128, XᵀX",
        lambda: launch(torch.float32, LARGE[4], 512, side="right"),
        dot="_f32",
        targets=IN_SHARED,
        max_registers={"sm_90": 240},
    ),
    case(
        "symmetric_product_kernel",
        "float32, 64, ieee",
        lambda: launch(torch.float32, replace(SMALL[4], float32="ieee")),
        dot="_f32",
        tensor_cores=False,
    ),
)
