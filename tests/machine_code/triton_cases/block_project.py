"""Products that end in a sum, and the last of a lift, which updates the weight: 16-byte accesses, no spills."""

from functools import partial

import torch

from kpop_kernels.backends.triton import block_project as product
from tests.machine_code.triton_products import case, zeros

Shapes = tuple[tuple[int, int, int], ...]
"""Rows, columns and rank of each matrix."""

ONE: Shapes = ((256, 512, 64),)
MANY: Shapes = ((256, 512, 64), (512, 256, 32))
"""A launch that is described by its arguments, and one that is by a table."""


def project(shapes: Shapes) -> None:
    """Split matrices; of the launches that end in a sum the last one, with the right basis transposed, counts."""
    bases = [(zeros(m, r), zeros(n, r)) for m, n, r in shapes]
    parts = [(zeros(r, r), zeros(m, r), zeros(r, n), zeros(m, n)) for m, n, r in shapes]
    G = [zeros(m, n) for m, n, _ in shapes]
    product.block_project_foreach(G, *zip(*bases, strict=True), out=tuple(zip(*parts, strict=True)))


def lift(shapes: Shapes, dtype: torch.dtype, *, sums_first: bool = True) -> None:
    """Lift parts into weights; without the first sums the last product is the only one."""
    items = []
    for m, n, r in shapes:
        main, B = (zeros(r, r), zeros(r, n)) if sums_first else (None, None)
        parts = (main, zeros(m, r), B, zeros(m, n))
        items.append((zeros(m, n, dtype=dtype), *parts, zeros(m, r), zeros(n, r)))
    factors = {"alpha": torch.tensor(-0.1), "beta": torch.tensor(0.9), "found_inf": [None] * len(shapes)}
    product.block_lift_foreach_(*zip(*items, strict=True), **factors)


SCALARS = 3
"""Loads of what all tiles of an item share: found_inf, alpha and beta."""

CASES = (
    case(
        "add_product_kernel",
        "float32, C - AUᵀ, 64×64, table",
        partial(project, MANY),
        dot="_f32",
        nvidia={"LDG.128": 4, "STG": 4, "STG.128": 4},
        table=True,
        amd={"v_mfma_f32_32x32x2_f32": 48, "global_store_dwordx4": 4},
    ),
    case(
        "add_product_kernel",
        "float32, C + UB, 64×64, table",
        partial(lift, MANY, torch.float32),
        dot="_f32",
        nvidia={"LDG.128": 4, "STG": 4, "STG.128": 4},
        table=True,
        amd={"v_mfma_f32_32x32x2_f32": 48, "global_store_dwordx4": 4},
    ),
    case(
        "block_lift_kernel",
        "float32, 64×64",
        partial(lift, ONE, torch.float32, sums_first=False),
        dot="_f32",
        nvidia={"LDG.128": 8, "LDG": 8 + SCALARS, "STG": 4, "STG.128": 4},
        amd={"v_mfma_f32_32x32x2_f32": 48, "buffer_store_dwordx4": 4},
    ),
    case(
        "block_lift_kernel",
        "bfloat16, 64×64, table",
        partial(lift, MANY, torch.bfloat16),
        dot="_f32",
        nvidia={"LDG.128": 6, "STG": 2, "STG.128": 2},
        table=True,
        amd={"v_mfma_f32_32x32x2_f32": 48, "global_store_dwordx2": 4},
    ),
)
