"""From the name of a Metal source to kernels that can be called."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Compiler = Callable[[str], Any]

_DIRECTORY = Path(__file__).parent


def compile_shader(source: str) -> Any:
    """Compile Metal source for the GPU of this Mac.

    All launchers compile through this function; tests put an emulator in its place.
    """
    return torch.mps.compile_shader(source)


def kernel(source_name: str, kernel_name: str) -> Callable[..., None]:
    """Return a kernel of ``<source_name>.metal``, compiled once in a process."""
    return _kernel(compile_shader, source_name, kernel_name)


def read_source(source_name: str) -> str:
    """Return ``<source_name>.metal`` with the sources it includes in quotes put in place.

    torch compiles one text and has no search path for our files.
    """
    return _inline(f"{source_name}.metal", set())


@functools.cache
def _library(compiler: Compiler, source_name: str) -> Any:
    return compiler(read_source(source_name))


@functools.cache
def _kernel(compiler: Compiler, source_name: str, kernel_name: str) -> Callable[..., None]:
    # An attribute of the library is a new kernel object at each access, hence the cache.
    function: Callable[..., None] = getattr(_library(compiler, source_name), kernel_name)
    return function


def _inline(file_name: str, included: set[str]) -> str:
    included.add(file_name)
    lines = []
    for line in (_DIRECTORY / file_name).read_text(encoding="ascii").splitlines():
        if not line.startswith('#include "'):
            lines.append(line)
        elif (name := line.split('"')[1]) not in included:
            lines.append(_inline(name, included))
    return "\n".join(lines) + "\n"
