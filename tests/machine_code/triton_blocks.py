"""Tensors that the operators on 8-bit blocks are compiled with, and what their code has in common."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tests.machine_code.amdgcn import expect_amd
from tests.machine_code.expectations import Expect
from tests.machine_code.triton_toolchain import TARGETS, Case

NUMEL = 8192

# What a correctly rounded division or square root costs on AMD in fused instructions. Those of the kernels' own
# products and sums would come on top.
DIVISION = {"v_fma_f32": 3, "v_fmac_f32_e32": 2}


def codes(numel: int = NUMEL) -> Tensor:
    """Return codes of elements, or zero points of blocks."""
    return torch.zeros(numel, dtype=torch.uint8)


def affine(block_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes, scales and zero points."""
    blocks = -(-NUMEL // block_size)
    return codes(), torch.zeros(blocks), codes(blocks)


def dynamic(block_size: int) -> tuple[Tensor, Tensor]:
    """Return codes and absmax."""
    return codes(), torch.zeros(-(-NUMEL // block_size))


def twice(*tensors: Tensor) -> list[list[Tensor]]:
    """Return a list of two equal items for each tensor."""
    return [[tensor, tensor] for tensor in tensors]


def case(
    kernel: str,
    variant: str,
    launch: Callable[[], None],
    *,
    nvidia: Mapping[str, int],
    amd: Mapping[str, int],
    max_registers: int,
    max_shared: int = 4096,
    vector_stores: bool = True,
) -> Case:
    """Return a case with exact counts of instructions, the same on every target of a vendor.

    A thread has 16 elements, 8 on AMD with its 64 threads a warp. AMD's shared memory may be four times that of
    NVIDIA, whose layouts are converted in parts.
    """
    on_nvidia = Expect(
        counts=nvidia, max_registers=max_registers, max_shared=max_shared, vector_stores=vector_stores
    )
    on_amd = expect_amd(
        counts={"v_pk_fma_f32": 0, **amd}, max_registers=max_registers, max_shared=4 * max_shared
    )
    expect = {target: on_amd if target.startswith("gfx") else on_nvidia for target in TARGETS}
    return Case(kernel, variant, launch, expect)


def times(count: int, instructions: Mapping[str, int] = DIVISION) -> dict[str, int]:
    """Return the instructions of several divisions."""
    return {name: count * number for name, number in instructions.items()}
