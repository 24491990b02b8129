"""A step of the coupled iteration: P in full, then Y and Z, carried in float32 beside narrower operands."""

from dataclasses import replace
from functools import partial

import torch

from kpop_kernels.backends.triton.coupled import Iteration, Products
from kpop_kernels.backends.triton.workspace import Group, Workspace
from kpop_kernels.tuning import LARGE, LARGE_IN_REGISTERS, SMALL, ProductConfig
from tests.machine_code.triton_products import IN_REGISTERS, IN_SHARED, case

MASKED = (528, 256)
WHOLE = (512, 256)


def launch(
    dtype: torch.dtype,
    config: ProductConfig,
    orders: tuple[int, ...] = MASKED,
    *,
    halves: bool | None = None,
    a: float = 1.5,
) -> None:
    """Take two steps of which the last launch is one of both Y and Z."""
    workspace = Workspace([Group(1, n, n) for n in orders], config, torch.device("cpu"))
    Y = torch.zeros(workspace.end.square_offset)
    products = Products(dtype, config.float32, halves=dtype == torch.float32 if halves is None else halves)
    iteration = Iteration(workspace, products, Y)
    iteration.multiply(a)
    iteration.update("YZ", (a, -0.5), (a, -0.5))


def step(dtype, config, stores, targets, orders=MASKED, **options):
    """Return the case of a launch for Y and Z: float32 values, and operands beside them, stored twice."""
    form = "halves" if options.get("halves", dtype == torch.float32) else "means"
    form += ", tf32" * (config.float32 == "tf32")
    name = f"{str(dtype).removeprefix('torch.')}, {config.block}×{config.block_k}, {form}"
    return case(
        "coupled_update_kernel",
        name if orders is MASKED else f"{name}, whole tiles",
        partial(launch, dtype, config, orders, **options),
        dot="_bf16" if dtype == torch.bfloat16 else f"_f{8 * dtype.itemsize}",
        nvidia={"STG.128": stores},
        targets=targets,
        table=True,
    )


CASES = (
    step(torch.float32, SMALL[4], 8, IN_REGISTERS),
    step(torch.float32, LARGE[4], 32, IN_SHARED),
    step(torch.float32, LARGE[4], 32, IN_SHARED, WHOLE),
    step(torch.float32, replace(LARGE[4], float32="tf32"), 32, ("sm_90",), halves=False),
    step(torch.float16, SMALL[2], 16, ("sm_90",)),
    step(torch.float16, LARGE[2], 32, IN_SHARED),
    step(torch.float16, LARGE[2], 32, IN_SHARED, WHOLE, halves=True),
    step(torch.float16, LARGE_IN_REGISTERS[2], 32, IN_REGISTERS),
    step(torch.bfloat16, LARGE[2], 32, ("sm_90",)),
)
