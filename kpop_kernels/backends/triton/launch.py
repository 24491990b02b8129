"""The launch seam: every kernel of this folder starts here.

Tests put the interpreter or the compiler behind it, so that what they see is what the host launchers launch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class LaunchConfig(Protocol):
    """What a configuration says to the compiler."""

    @property
    def num_warps(self) -> int:
        """Warps of a program."""

    @property
    def num_stages(self) -> int:
        """Depth of software pipelining."""


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel.

    Attributes:
        kernel: The function decorated with ``triton.jit``.
        grid: Number of programs along each axis.
        arguments: Tensors and scalars, in the kernel's order.
        constants: The kernel's ``tl.constexpr`` parameters by name.
        options: Options of the compiler by name.
        reached: Tensors that the kernel reaches through addresses in the memory of its arguments.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    options: dict[str, Any]
    reached: tuple[Tensor, ...] = ()


Runner = Callable[[Launch], None]


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    config: LaunchConfig,
    *,
    reached: tuple[Tensor, ...] = (),
    **constants: Any,
) -> None:
    """Launch a kernel on the device and the current stream of its tensors; an empty grid launches nothing.

    Multiplications and additions are not contracted: bits are promised. A kernel that wants a fused one says
    ``tl.fma``.
    """
    if 0 in grid:
        return
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages, "enable_fp_fusion": False}
    _runner(Launch(kernel, grid, arguments, constants, options, reached))


def run_on_device(launch: Launch) -> None:
    """Start a launch on the device of its first tensor, which need not be the current one."""
    tensor = next(argument for argument in launch.arguments if isinstance(argument, Tensor))
    with torch.cuda.device_of(tensor):
        launch.kernel[launch.grid](*launch.arguments, **launch.constants, **launch.options)


_runner: Runner = run_on_device


@contextmanager
def run_by(runner: Runner) -> Iterator[None]:
    """Give every launch to ``runner`` instead of a device."""
    global _runner
    before, _runner = _runner, runner
    try:
        yield
    finally:
        _runner = before
