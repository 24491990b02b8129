"""Compiles what the host launchers launch, for hardware that need not be there.

A compiler is put behind the launch seam: it takes the launch's own arguments and options through Triton's own
specialization, so that the code that is read is the code that would run.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from kpop_kernels.backends.triton.launch import Launch, run_by
from tests.machine_code.amdgcn import read_amdgcn
from tests.machine_code.expectations import Expect
from tests.machine_code.sass import KernelCode, read_cubin, read_ptx

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


@dataclass(frozen=True, eq=False)
class Case:
    """One way in which a kernel is launched.

    Attributes:
        kernel: Name of the kernel.
        variant: What sets the case apart from the kernel's others.
        launch: Calls the host launcher with CPU tensors.
        expect: What the code must be, for each target that the case is shipped for.
    """

    kernel: str
    variant: str
    launch: Callable[[], None]
    expect: Mapping[str, Expect]

    def __str__(self) -> str:
        return f"{self.kernel}, {self.variant}"


@dataclass(frozen=True)
class _Device:
    """Stands in for Triton's driver: a device of a given kind that nothing can be launched on."""

    name: str

    def get_current_target(self) -> GPUTarget:
        return TARGETS[self.name]

    def get_current_device(self) -> str:
        return self.name

    def get_current_stream(self, device: str) -> int:
        return 0


def compile_launches(launch: Callable[[], None], target: str, **options: Any) -> dict[str, KernelCode]:
    """Return the code of every kernel that a function launches.

    Args:
        launch: Calls host launchers with CPU tensors.
        target: One of `TARGETS`.
        **options: Compiler options that replace those of the launch.
    """
    compiled = _compiled(launch, target, **options)
    return {name: _read(kernel, name, target) for name, kernel in compiled}


def specializations(launch: Callable[[], None], target: str) -> int:
    """Return how many times the kernels that a function launches are compiled."""
    return len({id(kernel) for _, kernel in _compiled(launch, target)})


def _compiled(launch: Callable[[], None], target: str, **options: Any) -> list[tuple[str, Any]]:
    """Return name and compiled kernel of every launch; Triton compiles once for arguments of one kind."""
    compiled = []

    def run(launch: Launch) -> None:
        kernel = launch.kernel.warmup(
            *launch.arguments, grid=launch.grid, **launch.constants, **{**launch.options, **options}
        )
        compiled.append((launch.kernel.__name__, kernel))

    with patch.object(driver, "_active", _Device(target)), run_by(run):
        launch()
    return compiled


@cache
def compile_case(case: Case, target: str) -> KernelCode:
    """Return the code of a case's kernel."""
    return compile_launches(case.launch, target)[case.kernel]


def _read(compiled: Any, name: str, target: str) -> KernelCode:
    if "amdgcn" in compiled.asm:
        code = read_amdgcn(compiled.asm["amdgcn"], name, target)
    else:
        with tempfile.TemporaryDirectory() as folder:
            cubin = Path(folder) / "kernel.cubin"
            cubin.write_bytes(compiled.asm["cubin"])
            code = read_cubin(cubin)[name]
        # Triton compiles for sm_90a, say, where the target is sm_90.
        code = replace(code, target=target, ptx=read_ptx(compiled.asm["ptx"])[name])
    return replace(code, shared_bytes=compiled.metadata.shared)
