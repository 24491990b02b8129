"""CUDA C++ kernels for NVIDIA devices, from csrc/cuda, compiled into the extension where nvcc was found."""

from collections.abc import Callable
from importlib.util import find_spec

import torch

from .._lazy import imported_when_called

DEVICES = ("cuda",)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

FILES: dict[str, str] = {
    "quantize_int8": "quantize_int8",
    "quantize_int8_foreach": "quantize_int8",
    "dequantize_int8": "quantize_int8",
    "dequantize_int8_foreach": "quantize_int8",
    "quantize_dynamic8": "dynamic8",
    "dequantize_dynamic8": "dynamic8",
    "ema_int8_": "ema8",
    "ema_int8_foreach_": "ema8",
    "ema_sq_dynamic8_": "ema8",
    "ema_sq_dynamic8_foreach_": "ema8",
    "adam8_": "adam8",
    "adam8_foreach_": "adam8",
    "stochastic_round_bf16": "stochastic_round",
    "inverse_root": "inverse_root",
    "inverse_root_foreach": "inverse_root",
    "kron_rotate": "kron_rotate",
    "kron_adam_": "kron_adam",
    "kron_adam_foreach_": "kron_adam",
}
"""The file in this folder that implements an operator, by the operator's name."""

LARGEST_IN_ONE_BLOCK = 128
ONE_BLOCK = ("inverse_root", "kron_rotate", "kron_adam")
"""Files whose kernels hold a whole matrix in one thread block."""


def refusal(op: str, tensor: torch.Tensor) -> str | None:
    """Say why an operator is not served for a shape; None where it is."""
    if FILES.get(op) not in ONE_BLOCK or max(tensor.shape[-2:]) <= LARGEST_IN_ONE_BLOCK:
        return None
    return f"takes matrices with sides up to {LARGEST_IN_ONE_BLOCK}, not {tuple(tensor.shape[-2:])}"


def absent_because() -> str | None:
    """Say why the kernels cannot run; a compiled extension that fails to load raises instead."""
    if find_spec("kpop_kernels._native") is None:
        return "the package was installed without its compiled extension"
    if torch.version.cuda is None or not torch.cuda.is_available():
        return "there is no CUDA device"
    from ..._native import CUDA_COMPILED

    return None if CUDA_COMPILED else "the extension was compiled without nvcc"


def implementations() -> dict[str, Callable[..., None]]:
    """Return every operator's function by name."""
    return imported_when_called(__name__, FILES)
