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
    from . import gram, inverse_root, kron, symmetric

    return {
        "gram_ema_": gram.gram_ema_,
        "kron_adam_": kron.kron_adam_,
        "inverse_root": inverse_root.inverse_root,
        "inverse_root_foreach": inverse_root.inverse_root_foreach,
        "symm_mm": symmetric.symm_mm,
        "syrk": symmetric.syrk,
    }
