"""Symmetric products: each tile above the diagonal is stored twice."""

from dataclasses import replace
from functools import partial

import torch

from kpop_kernels.backends.triton import symmetric as product
from kpop_kernels.tuning import LARGE, LARGE_IN_REGISTERS, SMALL, ProductConfig
from tests.machine_code.triton_products import IN_REGISTERS, IN_SHARED, case

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


def launch_list(
    config: ProductConfig, *, side: str = "left", dtype: torch.dtype = torch.float32, diagonal: float = 0.0
) -> None:
    """Average two covariances of different orders."""
    S, X = ([torch.empty(n, n, dtype=kind) for n in (ORDER, 256)] for kind in (torch.float32, dtype))
    product.average_grams(S, X, alpha=[0.1, 0.2], beta=0.9, side=[side] * 2, diagonal=diagonal, config=config)


def list_case(config, stores, targets, *, dtype=torch.float32, **options):
    """Return the case of a list of float32 covariances."""
    notes = "".join(f", {name} {value}" for name, value in options.items())
    return case(
        "symmetric_product_kernel",
        f"{str(dtype).removeprefix('torch.')}, {config.block}×{config.block_k}, table{notes}",
        partial(launch_list, config, dtype=dtype, **options),
        dot="_bf16" if dtype == torch.bfloat16 else "_f32",
        nvidia={"STG.128": stores, "LDG.128": stores // 2},
        targets=targets,
        table=True,
    )


def product_case(dtype, config, stores, targets, n=ORDER, *, side="left", **options):
    """Return the case of a configuration: a thread stores its part of a tile twice, and loads the addend once."""
    name = f"{str(dtype).removeprefix('torch.')}, {config.block}×{config.block_k}"
    notes = (", ieee" * (config.float32 == "ieee"), ", XᵀX" * (side == "right"))
    return case(
        "symmetric_product_kernel",
        name + "".join(notes) + ", whole tiles" * (n != ORDER),
        partial(launch, dtype, config, n, side=side),
        dot="_bf16" if dtype == torch.bfloat16 else f"_f{8 * dtype.itemsize}",
        nvidia={"STG.128": stores, "LDG.128": stores // 2},
        targets=targets,
        **options,
    )


CASES = (
    product_case(torch.float16, SMALL[2], 8, ("sm_90",)),
    product_case(torch.float16, LARGE[2], 16, IN_SHARED),
    product_case(torch.float16, LARGE[2], 16, IN_SHARED, 512),
    product_case(torch.float16, LARGE_IN_REGISTERS[2], 16, IN_REGISTERS),
    product_case(torch.bfloat16, LARGE[2], 16, ("sm_90",)),
    product_case(torch.float32, SMALL[4], 8, IN_REGISTERS),
    product_case(torch.float32, LARGE[4], 32, IN_SHARED),
    product_case(torch.float32, LARGE[4], 32, IN_SHARED, 512),
    product_case(torch.float32, LARGE[4], 32, ("sm_90",), side="right"),
    product_case(torch.float32, replace(SMALL[4], float32="ieee"), 8, ("sm_90",), tensor_cores=False),
    list_case(SMALL[4], 8, IN_REGISTERS, diagonal=1e-9),
    list_case(LARGE[4], 32, IN_SHARED),
    list_case(LARGE[4], 32, IN_SHARED, side="right"),
    list_case(LARGE[4], 32, IN_SHARED, diagonal=1e-9),
    list_case(LARGE[2], 32, IN_SHARED, dtype=torch.bfloat16),
    list_case(LARGE_IN_REGISTERS[2], 32, IN_REGISTERS, dtype=torch.bfloat16),
)
