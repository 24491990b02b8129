"""What the products of Kronecker rotations are compiled with, and what their code has in common."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tests.machine_code.amdgcn import expect_amd
from tests.machine_code.expectations import TRITON_DOT, Expect
from tests.machine_code.triton_toolchain import TARGETS, Case

ONE, MANY = ((256, 256),), ((256, 256), (256, 512))
"""Shapes of a launch by arguments and of one by a table; no order is a multiple of the other's tile only."""


def zeros(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor that nothing is launched on."""
    return torch.zeros(sizes, dtype=dtype)


def case(
    kernel: str,
    variant: str,
    launch: Callable[[], None],
    *,
    nvidia: Mapping[str, int],
    amd: Mapping[str, int],
    max_registers: int = 255,
    max_shared: int = 96 * 1024,
) -> Case:
    """Return a case of a product; exact counts are those of a tile's end, and on AMD of its matrix instructions.

    The counts of loads and stores are those of the end of a tile alone: operands go to shared memory by
    asynchronous copies, and each element tensor is read once and written once.
    """
    on_nvidia = Expect(
        tensor_cores=TRITON_DOT, counts=nvidia, max_registers=max_registers, max_shared=max_shared + 64
    )
    on_amd = expect_amd(counts=amd, max_registers=256, max_shared=64 * 1024)
    return Case(kernel, variant, launch, {t: on_amd if t.startswith("gfx") else on_nvidia for t in TARGETS})


def elementwise(kernel: str, variant: str, launch: Callable[[], None], nvidia: Mapping[str, int]) -> Case:
    """Return a case of a pass over elements, 16 a thread."""
    on_nvidia = Expect(counts=nvidia, max_registers=128)
    on_amd = expect_amd(counts={}, max_registers=128, max_shared=64 * 1024)
    return Case(kernel, variant, launch, {t: on_amd if t.startswith("gfx") else on_nvidia for t in TARGETS})
