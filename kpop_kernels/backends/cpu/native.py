"""The compiled kernels, and what every launcher needs to call them."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ..._native import BlockItem, Cpu
from .._lists import groups

_kernels = Cpu()


def kernels() -> Cpu:
    """Return the kernels in use: the best instruction set of this processor, or the one named by `using`."""
    return _kernels


@contextmanager
def using(isa: str) -> Iterator[None]:
    """Use the kernels of one instruction set: "avx512", "avx2" or "baseline".

    Raises:
        ValueError: This processor or this build has no kernels of that name.
    """
    global _kernels
    before, _kernels = _kernels, Cpu(isa)
    try:
        yield
    finally:
        _kernels = before


def random_key(seed: int, step: Tensor | None) -> dict[str, int]:
    """Return what the kernels want for a seed, which the dispatcher passes as a signed integer, and a step."""
    number = 0 if step is None else int(step.item())
    return {"seed": seed & 0xFFFFFFFFFFFFFFFF, "step": number & 0xFFFFFFFF}


def by_step(
    items: Sequence[BlockItem], seed: int, steps: Sequence[Tensor | None]
) -> Iterator[tuple[list[BlockItem], dict[str, int]]]:
    """Yield the items of each step with what the kernels want for it."""
    numbers = [random_key(seed, step)["step"] for step in steps]
    for members in groups(numbers).values():
        yield [items[i] for i in members], random_key(seed, steps[members[0]])


def threads() -> int:
    """Return the number of threads that torch would use."""
    return torch.get_num_threads()


def correction(beta: float, step: float) -> float:
    """Return 1 / (1 - betaᵗ), which makes up for an average's start from zero, without cancellation."""
    return -1 / math.expm1(step * math.log(beta)) if beta else 1.0
