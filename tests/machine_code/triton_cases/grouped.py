"""Products of all matrices of a workspace."""

from functools import partial

import torch

from kpop_kernels.backends.triton import grouped as product
from kpop_kernels.backends.triton.workspace import Group, Workspace
from kpop_kernels.tuning import LARGE, LARGE_IN_REGISTERS, SMALL, ProductConfig
from tests.machine_code.triton_products import IN_REGISTERS, IN_SHARED, case

GROUPS = (Group(2, 528, 1040), Group(1, 256, 256))
"""The rows of the first are no multiple of a tile: accesses are masked."""


def launch(dtype: torch.dtype, config: ProductConfig, *, kernel: str, alpha: float = 0.5) -> None:
    """Compute a Gram matrix, a polynomial of it, or its product with wide matrices."""
    workspace = Workspace(GROUPS, config, torch.device("cpu"))
    X = torch.empty(workspace.end.wide_offset, dtype=dtype)
    R = torch.empty(workspace.end.square_offset, dtype=dtype)
    if kernel == "gram":
        product.symmetric_product(workspace, X, out=R, alpha=alpha)
    elif kernel == "polynomial":
        product.symmetric_product(workspace, R, R, R, out=torch.empty_like(R), alpha=alpha, diagonal=alpha)
    else:
        product.product(workspace, R, X, X, out=torch.empty_like(X), alpha=alpha, beta=alpha, wide=True)


def variants(dtype, config, store, targets):
    """Yield the three products of a polar factor: symmetric results are stored twice."""
    name = f"{str(dtype).removeprefix('torch.')}, {config.block}×{config.block_k}"
    for kernel, function, stores in (
        ("gram", "grouped_symmetric_kernel", 2 * store),
        ("polynomial", "grouped_symmetric_kernel", 2 * store),
        ("wide", "grouped_product_kernel", store),
    ):
        yield case(
            function,
            f"{kernel}, {name}",
            partial(launch, dtype, config, kernel=kernel),
            dot=f"_f{8 * dtype.itemsize}",
            nvidia={"STG.128": stores},
            targets=targets,
            table=True,
        )


CASES = (
    *variants(torch.float16, SMALL[2], 4, ("sm_90",)),
    *variants(torch.float16, LARGE[2], 8, IN_SHARED),
    *variants(torch.float16, LARGE_IN_REGISTERS[2], 8, IN_REGISTERS),
    *variants(torch.float32, SMALL[4], 4, IN_REGISTERS),
    *variants(torch.float32, LARGE[4], 16, IN_SHARED),
)
