"""Gradients that are not finite: found without waiting for a device, and without a trace in what is kept."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor


class Finding(NamedTuple):
    """What is known of a gradient.

    Attributes:
        finite: Whether it is finite; None where only its device knows.
        nonzero: Whether it is finite and anything but zero; None likewise.
        found_inf: Where only the device knows: 1 there if it holds NaN or Inf, else 0.
    """

    finite: bool | None
    nonzero: bool | None
    found_inf: Tensor | None = None


def on_host(device: torch.device) -> bool:
    """Tell whether the host reads a device's tensors without waiting."""
    return device.type == "cpu"


def examine(gradients: Sequence[Tensor], must_know: Sequence[bool]) -> list[Finding]:
    """Find out which gradients are finite and which are zero, one transfer a device and dtype at most.

    Args:
        gradients: Real gradients.
        must_know: For each whether the host must know; it learns of all others of the device and dtype then.
    """
    findings = [Finding(finite=True, nonzero=False)] * len(gradients)
    together: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for i, gradient in enumerate(gradients):
        if gradient.numel():
            together.setdefault((gradient.device, gradient.dtype), []).append(i)
    for (device, _), places in together.items():
        ends = torch.stack([end for i in places for end in gradients[i].aminmax()]).unflatten(0, (-1, 2))
        if on_host(device) or any(must_know[i] for i in places):
            for i, (low, high) in zip(places, ends.tolist(), strict=True):
                finite = math.isfinite(low) and math.isfinite(high)
                findings[i] = Finding(finite, finite and (low != 0 or high != 0))
        else:
            flags = ends.isfinite().all(-1).logical_not().to(torch.float32)
            for i, flag in zip(places, flags.unbind(), strict=True):
                findings[i] = Finding(None, None, flag)
    return findings


@contextmanager
def undone_if(found_inf: Tensor | None, *tensors: Tensor) -> Iterator[list[Tensor]]:
    """Yield tensors to overwrite; at the end those given hold what was written, unless something was found.

    Args:
        found_inf: 0-d tensor, decides on its device when it is not zero; None is known to be zero, and the tensors
            that are yielded are those given.
        tensors: What is to be overwritten.
    """
    with each_undone_if([found_inf] * len(tensors), tensors) as written:
        yield written


@contextmanager
def each_undone_if(found_inf: Sequence[Tensor | None], tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The same where each tensor has a ``found_inf`` of its own."""
    written = [
        tensor if found is None else tensor.clone() for found, tensor in zip(found_inf, tensors, strict=True)
    ]
    yield written
    for found, tensor, value in zip(found_inf, tensors, written, strict=True):
        if found is not None:
            tensor.copy_(torch.where(found == 0, value, tensor))
