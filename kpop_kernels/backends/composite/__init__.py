"""Plain aten: serves every operator on every device, and float64 for verification."""

from collections.abc import Callable

import torch

from .. import _block_project, _eigenbasis
from . import (
    adam8,
    dynamic8,
    ema8,
    gram,
    inverse_root,
    kron,
    kron_adam8,
    newton_schulz,
    nystrom,
    quantize_int8,
    stochastic_round,
    symmetric,
    whiten,
)

DEVICES: tuple[str, ...] = ()
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def absent_because() -> str | None:
    """Return None: torch itself is always there."""
    return None


def implementations() -> dict[str, Callable[..., None]]:
    """Return every operator's function by name."""
    return {
        "gram_ema_": gram.gram_ema_,
        "kron_rotate": kron.kron_rotate,
        "kron_adam_": kron.kron_adam_,
        "kron_adam8_": kron_adam8.kron_adam8_,
        "rebase_moments_": kron.rebase_moments_,
        "refresh_eigenbasis": _eigenbasis.refresh_eigenbasis,
        "nystrom_eigh": nystrom.nystrom_eigh,
        "block_project": _block_project.block_project,
        "block_lift_": _block_project.block_lift_,
        "whiten": whiten.whiten,
        "whiten_update_": whiten.whiten_update_,
        "kl_gram_ema_": whiten.kl_gram_ema_,
        "quantize_int8": quantize_int8.quantize_int8,
        "dequantize_int8": quantize_int8.dequantize_int8,
        "quantize_dynamic8": dynamic8.quantize_dynamic8,
        "dequantize_dynamic8": dynamic8.dequantize_dynamic8,
        "ema_int8_": ema8.ema_int8_,
        "ema_sq_dynamic8_": ema8.ema_sq_dynamic8_,
        "adam8_": adam8.adam8_,
        "stochastic_round_bf16": stochastic_round.stochastic_round_bf16,
        "inverse_root": inverse_root.inverse_root,
        "inverse_root_foreach": inverse_root.inverse_root_foreach,
        "newton_schulz": newton_schulz.newton_schulz,
        "newton_schulz_foreach": newton_schulz.newton_schulz_foreach,
        "symm_mm": symmetric.symm_mm,
        "syrk": symmetric.syrk,
    }
