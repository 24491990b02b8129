"""CUDA C++ kernels for NVIDIA devices, from csrc/cuda, compiled into the extension where nvcc was found."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import prod
from typing import Any

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
    "kron_adam_foreach_": "kron_adam",
    "kron_adam8_foreach_": "kron_adam8",
}
"""The file in this folder that implements an operator, by the operator's name."""

LARGEST_IN_ONE_BLOCK = 128
LONGEST_SIDE = 2**24
"""Of a matrix that many thread blocks share; they count the entries of their parts in 32 bits."""
LARGEST_FUSED_BLOCK = 1024
"""Elements of an 8-bit block where a warp holds it, as in `kron_adam8_`."""


def refusal(op: str, tensor: torch.Tensor, item: Mapping[str, Any]) -> str | None:
    """Say why an operator is not served for a shape; None where it is.

    Args:
        op: The operator.
        tensor: The tensor that decides what serves it.
        item: The arguments by name; those that are missing are thought to be there and to be tensors.
    """
    family, sides = op.rstrip("_").removesuffix("_foreach"), tuple(tensor.shape[-2:])
    if family in ("inverse_root", "kron_adam8") and max(sides) > LARGEST_IN_ONE_BLOCK:
        return f"takes matrices with sides up to {LARGEST_IN_ONE_BLOCK}, not {sides}"
    if family == "kron_adam8":
        block_size = item.get("block_size", 256)
        if block_size > LARGEST_FUSED_BLOCK:
            return f"takes blocks of up to {LARGEST_FUSED_BLOCK} elements, not {block_size}"
        if prod(tensor.shape[:-2]) > 1 and prod(sides) % block_size:
            return f"takes matrices of whole blocks of {block_size}, or one alone, not {tuple(tensor.shape)}"
    if family in ("kron_rotate", "kron_adam"):
        for size, name in zip(sides, ("Q_L", "Q_R"), strict=False):
            limit = LARGEST_IN_ONE_BLOCK if item.get(name, tensor) is not None else LONGEST_SIDE
            if size > limit:
                which = "with a basis" if limit == LARGEST_IN_ONE_BLOCK else "without a basis"
                return f"takes sides {which} up to {limit}, not {sides}"
    return None


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
