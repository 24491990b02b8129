"""Which rule a parameter gets: by its shape, the layers that use it, and the limits of its group."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Rule:
    """How a parameter is treated.

    Attributes:
        shape: The parameter seen as matrices, (..., m, n).
        left: Whether the side of m is rotated into an eigenbasis.
        right: Whether the side of n is.
        why: The reason, for people.
    """

    shape: tuple[int, ...]
    left: bool
    right: bool
    why: str

    @property
    def method(self) -> str:
        """Name of the treatment."""
        if self.left and self.right:
            return "both sides"
        return "left side" if self.left else "right side" if self.right else "Adam"


def route(parameter: Tensor, *, max_precond_dim: int, sites: Sequence[str] = ()) -> Rule:
    """Return the rule of a parameter.

    Matrices (m, n) and stacks of them (e, m, n) are taken as they are, higher orders as (first, rest). A side is
    rotated if it is longer than 1 and at most ``max_precond_dim``; the vocabulary side of an embedding never is.

    Args:
        parameter: The parameter.
        max_precond_dim: Longest side that gets a factor.
        sites: Kinds of the layers that use the parameter, as far as known.
    """
    if parameter.ndim < 2:
        return Rule((1, parameter.numel()), False, False, "a vector has no second side")
    shape = tuple(parameter.shape) if parameter.ndim <= 3 else (parameter.shape[0], parameter[0].numel())
    if parameter.numel() == 0:
        return Rule(shape, False, False, "empty")
    m, n = shape[-2:]
    embedding = "Embedding" in sites
    left = 1 < m <= max_precond_dim and not embedding
    right = 1 < n <= max_precond_dim
    reasons = []
    if embedding:
        reasons.append("the input side of an embedding is diagonal")
    for side, size in (("left", m), ("right", n)):
        if size > max_precond_dim and not (embedding and side == "left"):
            reasons.append(f"the {side} side, {size}, is longer than max_precond_dim={max_precond_dim}")
        elif size == 1:
            reasons.append(f"the {side} side has length 1")
    return Rule(shape, left, right, "; ".join(reasons) or "a matrix")


def as_matrices(tensor: Tensor, rule: Rule) -> Tensor:
    """Return a tensor seen as its rule's matrices: a view where strides allow, else a copy."""
    return tensor if tensor.shape == rule.shape else tensor.reshape(rule.shape)
