"""C++ kernels for CPUs, from csrc/cpu, with the instruction set chosen at run time."""

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
    from . import adam8, dynamic8, ema8, gram, inverse_root, kron, quantize_int8, stochastic_round, symmetric

    return {
        "gram_ema_": gram.gram_ema_,
        "kron_adam_": kron.kron_adam_,
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
        "symm_mm": symmetric.symm_mm,
        "syrk": symmetric.syrk,
    }
