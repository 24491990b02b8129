"""Triton kernels for CUDA and ROCm devices; triton is imported when a kernel is first launched."""

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
    "quantize_dynamic8_foreach": "dynamic8",
    "dequantize_dynamic8": "dynamic8",
    "dequantize_dynamic8_foreach": "dynamic8",
    "ema_int8_": "ema8",
    "ema_int8_foreach_": "ema8",
    "ema_sq_dynamic8_": "ema8",
    "ema_sq_dynamic8_foreach_": "ema8",
    "adam8_": "adam8",
    "adam8_foreach_": "adam8",
    "stochastic_round_bf16": "stochastic_round",
    "kron_rotate": "kron_rotate",
    "kron_adam_foreach_": "kron_adam",
    "gram_ema_foreach_": "gram",
    "kron_adam8_foreach_": "kron_adam8",
    "rebase_moments_foreach_": "rebase_moments",
    "kl_gram_ema_foreach_": "kl_gram",
    "whiten_foreach": "whiten",
    "whiten_update_foreach_": "whiten",
    "block_project_foreach": "block_project",
    "block_lift_foreach_": "block_project",
    "symm_mm": "symmetric",
    "syrk": "symmetric",
    "inverse_root": "inverse_root",
    "inverse_root_foreach": "inverse_root",
    "newton_schulz": "newton_schulz",
    "newton_schulz_foreach": "newton_schulz",
}
"""The file in this folder that implements an operator, by the operator's name."""


def absent_because() -> str | None:
    """Say why the kernels cannot run, without importing triton."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if not torch.cuda.is_available():
        return "there is no CUDA or ROCm device"
    return None


def implementations() -> dict[str, Callable[..., None]]:
    """Return every operator's function by name."""
    return imported_when_called(__name__, FILES)
