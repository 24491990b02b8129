"""What the code of all matrix products has in common: matrix instructions, 16-byte accesses, no spills."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import torch
from torch import Tensor

from tests.machine_code.amdgcn import expect_amd
from tests.machine_code.expectations import TRITON_DOT, Expect
from tests.machine_code.triton_toolchain import TARGETS, Case

ONE, MANY = ((256, 256),), ((256, 256), (256, 512))
"""Shapes of a launch that is described by its arguments, and of one that is by a table."""

LARGEST_SHARED = 99 * 1024
"""Of a block on the chips with the least of it."""

IN_SHARED = ("sm_90", "sm_100", "gfx942")
"""Targets that large float32 tiles are shipped for: those whose matrix instructions leave registers for them."""

IN_REGISTERS = ("sm_80",)
"""Targets whose matrix instructions take both operands from registers."""

_NARROW = ("LDG.U8", "LDG.U16", "STG.U8", "STG.U16", "STG.64")
_NONE: Mapping[str, int] = MappingProxyType({})


def case(
    kernel: str,
    variant: str,
    launch: Callable[[], None],
    *,
    dot: str,
    nvidia: Mapping[str, int] = _NONE,
    amd: Mapping[str, int] = _NONE,
    table: bool = False,
    targets: tuple[str, ...] = tuple(TARGETS),
    tensor_cores: bool = True,
) -> Case:
    """Return a case of a product.

    Args:
        kernel: Name of the kernel.
        variant: What sets the case apart.
        launch: Calls the host launcher.
        dot: Suffix of AMD's matrix instruction.
        nvidia: Exact numbers of instructions on NVIDIA's targets.
        amd: The same on AMD.
        table: Whether sizes and addresses are read from memory, 8 bytes at a time.
        targets: What the case is shipped for.
        tensor_cores: Whether NVIDIA's targets use theirs.
    """
    expect = {}
    for target in targets:
        if target.startswith("gfx"):
            expected = expect_amd(counts=amd, max_registers=255, max_shared=64 * 1024)
            shape = "32x32x2" if dot == "_f32" else "32x32x8"
            expect[target] = replace(expected, tensor_cores={target: f"v_mfma_f32_{shape}{dot}"})
        else:
            expect[target] = Expect(
                tensor_cores=TRITON_DOT if tensor_cores else {},
                counts=dict.fromkeys(_NARROW if table else (*_NARROW, "LDG.64"), 0) | nvidia,
                max_registers=255,
                max_shared=LARGEST_SHARED,
                no_fma=False,
            )
    return Case(kernel, variant, launch, expect)


def elementwise(
    kernel: str,
    variant: str,
    launch: Callable[[], None],
    nvidia: Mapping[str, int],
    amd: Mapping[str, int],
) -> Case:
    """Return a case of a pass over elements without a product, 8 a thread."""
    on_nvidia = Expect(counts=nvidia, max_registers=64)
    on_amd = expect_amd(counts=amd, max_registers=64, max_shared=32 * 1024)
    return Case(kernel, variant, launch, {t: on_amd if t.startswith("gfx") else on_nvidia for t in TARGETS})


def zeros(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor that nothing is launched on."""
    return torch.zeros(sizes, dtype=dtype)
