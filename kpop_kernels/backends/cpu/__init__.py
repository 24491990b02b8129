"""C++ kernels for CPUs, from csrc/cpu, with the instruction set chosen at run time.

Where a matrix is short, its products are the register tiles of csrc/cpu/panels.h, with what follows in their
epilogues; long ones are left to torch's BLAS.
"""

from collections.abc import Callable
from importlib.util import find_spec

import torch

DEVICES = ("cpu",)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def absent_because() -> str | None:
    """Say why the kernels cannot run; a compiled extension that fails to load raises instead."""
    if find_spec("kpop_kernels._native") is None:
        return "the package was installed without its compiled extension"
    return None


def implementations() -> dict[str, Callable[..., None]]:
    """Return every operator's function by name."""
    from . import (
        adam8,
        block_project,
        dynamic8,
        eigenbasis,
        ema8,
        gram,
        inverse_root,
        kron,
        kron_adam8,
        newton_schulz,
        quantize_int8,
        stochastic_round,
        symmetric,
        whiten,
    )

    return {
        "gram_ema_foreach_": gram.gram_ema_foreach_,
        "kron_rotate": kron.kron_rotate,
        "kron_adam_foreach_": kron.kron_adam_foreach_,
        "rebase_moments_foreach_": kron.rebase_moments_foreach_,
        "kron_adam8_foreach_": kron_adam8.kron_adam8_foreach_,
        "block_project": block_project.block_project,
        "block_lift_": block_project.block_lift_,
        "whiten_foreach": whiten.whiten_foreach,
        "whiten_update_foreach_": whiten.whiten_update_foreach_,
        "kl_gram_ema_foreach_": whiten.kl_gram_ema_foreach_,
        "quantize_int8_foreach": quantize_int8.quantize_int8_foreach,
        "dequantize_int8_foreach": quantize_int8.dequantize_int8_foreach,
        "quantize_dynamic8_foreach": dynamic8.quantize_dynamic8_foreach,
        "dequantize_dynamic8_foreach": dynamic8.dequantize_dynamic8_foreach,
        "ema_int8_foreach_": ema8.ema_int8_foreach_,
        "ema_sq_dynamic8_foreach_": ema8.ema_sq_dynamic8_foreach_,
        "adam8_foreach_": adam8.adam8_foreach_,
        "stochastic_round_bf16_foreach": stochastic_round.stochastic_round_bf16_foreach,
        "refresh_eigenbasis": eigenbasis.refresh_eigenbasis,
        "inverse_root": inverse_root.inverse_root,
        "inverse_root_foreach": inverse_root.inverse_root_foreach,
        "newton_schulz": newton_schulz.newton_schulz,
        "newton_schulz_foreach": newton_schulz.newton_schulz_foreach,
        "symm_mm": symmetric.symm_mm,
        "syrk": symmetric.syrk,
    }
