"""Plain aten: serves every operator on every device, and float64 for verification."""

from collections.abc import Callable

import torch

from . import gram, inverse_root, kron, newton_schulz, symmetric

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
        "rebase_moments_": kron.rebase_moments_,
        "inverse_root": inverse_root.inverse_root,
        "inverse_root_foreach": inverse_root.inverse_root_foreach,
        "newton_schulz": newton_schulz.newton_schulz,
        "newton_schulz_foreach": newton_schulz.newton_schulz_foreach,
        "symm_mm": symmetric.symm_mm,
        "syrk": symmetric.syrk,
    }
