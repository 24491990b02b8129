"""Backends of GPUs on this CPU, in the emulations that the tests run them in.

with operator("metal", "inverse_root") as inverse_root:
    root, bound = inverse_root(A, 2, **options)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS

NAMES = ("triton", "cuda", "metal")


@contextmanager
def operator(backend: str, op: str) -> Iterator[Callable[..., Any]]:
    """Yield an operator of any backend behind the package's checks; one of a GPU takes tensors of the CPU.

    Args:
        backend: Name of the backend.
        op: Name of the operator.

    Raises:
        ImportError: Triton or pytest, which the emulations need, is not installed.
        RuntimeError: The compiler of an emulation is not installed.
    """
    if backend not in NAMES:
        yield getattr(backends.get(backend), op)
    elif backend == "triton":
        with _tests("triton.interpreter").interpreter():
            yield _guarded(backend, op)
    elif backend == "cuda":
        with _tests("cuda_backend").emulated(only=f"{op}.cu"):
            yield _guarded(backend, op)
    else:
        with import_module("pytest").MonkeyPatch.context() as patch:
            _tests("metal_backend").emulate(patch)
            yield _guarded(backend, op)


def _tests(module: str) -> Any:
    return import_module(f"tests.emulation.{module}")


def _guarded(backend: str, op: str) -> Callable[..., Any]:
    package = import_module(f"{backends.__name__}.{backend}")
    return OPERATORS[op].guarded(backends.complete(package.implementations())[op])
