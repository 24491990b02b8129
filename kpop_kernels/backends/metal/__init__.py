"""Operators for Apple GPUs: Metal sources that ``torch.mps.compile_shader`` compiles at first use.

A list is a dispatch for each item, which torch puts into one command buffer. One dispatch for all would need the
addresses of the items' buffers in memory, and ``compile_shader`` binds tensors to numbered arguments only.
"""

from collections.abc import Callable

import torch

from .._lazy import imported_when_called

DEVICES = ("mps",)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

FILES: dict[str, str] = {
    "quantize_int8": "quantize_int8",
    "dequantize_int8": "quantize_int8",
    "quantize_dynamic8": "dynamic8",
    "dequantize_dynamic8": "dynamic8",
    "ema_int8_": "ema8",
    "ema_sq_dynamic8_": "ema8",
    "adam8_": "adam8",
    "stochastic_round_bf16": "stochastic_round",
    "inverse_root": "inverse_root",
    "inverse_root_foreach": "inverse_root",
    "newton_schulz": "newton_schulz",
    "newton_schulz_foreach": "newton_schulz",
    "symm_mm": "symmetric",
    "syrk": "symmetric",
    "gram_ema_": "gram",
    "kron_rotate": "kron_rotate",
    "kron_adam_": "kron_adam",
    "kron_adam8_": "kron_adam8",
    "rebase_moments_": "rebase_moments",
    "whiten": "whiten",
    "whiten_update_": "whiten",
    "kl_gram_ema_": "whiten",
}
"""The file in this folder that implements an operator, by the operator's name."""


def absent_because() -> str | None:
    """Say why the kernels cannot run."""
    return None if torch.backends.mps.is_available() else "there is no Apple GPU"


def implementations() -> dict[str, Callable[..., None]]:
    """Return every operator's function by name."""
    return imported_when_called(__name__, FILES)
