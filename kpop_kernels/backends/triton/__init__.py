"""Triton kernels for CUDA and ROCm devices; triton is imported when a kernel is first launched."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

DEVICES = ("cuda",)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

FILES: dict[str, str] = {}
"""The file in this folder that implements an operator, by the operator's name."""


def absent_because() -> str | None:
    """Say why the kernels cannot run, without importing triton."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if not torch.cuda.is_available():
        return "there is no CUDA or ROCm device"
    return None


def implementations() -> dict[str, Callable[..., None]]:
    """Return every operator's function by name; calling one imports its file."""
    return {op: _imported_when_called(op, file) for op, file in FILES.items()}


def _imported_when_called(op: str, file: str) -> Callable[..., None]:
    def run(*args: Any, **kwargs: Any) -> None:
        getattr(import_module(f"{__name__}.{file}"), op)(*args, **kwargs)

    return run
