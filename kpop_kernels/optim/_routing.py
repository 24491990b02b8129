"""Which rule a parameter gets: by its shape, the layers that use it, its name, and the limits of its group."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Literal

from torch import Tensor, nn

Treatment = Literal["both", "left", "right", "adam"]
Rules = Mapping[str, Treatment]

TREATMENTS: dict[str, tuple[bool, bool]] = {
    "both": (True, True),
    "left": (True, False),
    "right": (False, True),
    "adam": (False, False),
}
"""The sides, (left, right), that each treatment leaves to the optimizer's method."""


@dataclass(frozen=True)
class Rule:
    """How a parameter is treated.

    Attributes:
        shape: The parameter seen as matrices, (..., m, n).
        left: Whether the side of m is treated by the optimizer's method.
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


def route(
    parameter: Tensor,
    *,
    max_precond_dim: int | None = None,
    shortest_side: int = 2,
    sites: Sequence[str] = (),
    treatment: str | None = None,
) -> Rule:
    """Return the rule of a parameter.

    Matrices (m, n) and stacks of them (e, m, n) are taken as they are, higher orders as (first, rest). A side is
    treated if its length is from ``shortest_side`` to ``max_precond_dim``; the vocabulary side of an embedding
    never is.

    Args:
        parameter: The parameter.
        max_precond_dim: Longest side that gets a factor; None is any.
        shortest_side: Shortest side that gets one: a rotation of a side of length 1 would do nothing.
        sites: Kinds of the layers that use the parameter, as far as known.
        treatment: The sides that a name pattern allows, a key of `TREATMENTS`; None allows all.
    """
    shape = matrix_shape(parameter)
    if parameter.ndim < 2:
        return Rule(shape, False, False, "a vector has no second side")
    return _route(shape, max_precond_dim, shortest_side, "Embedding" in sites, treatment)


@cache
def _route(
    shape: tuple[int, ...],
    max_precond_dim: int | None,
    shortest_side: int,
    embedding: bool,
    treatment: str | None,
) -> Rule:
    """Return the rule of matrices; it is asked for in every step."""
    if 0 in shape:
        return Rule(shape, False, False, "empty")
    reasons = ["the input side of an embedding is diagonal"] if embedding else []
    if treatment is not None:
        reasons.append(f"rules say {treatment!r}")
    sides: list[bool] = []
    for side, size, allowed in zip(
        ("left", "right"), shape[-2:], TREATMENTS[treatment or "both"], strict=True
    ):
        allowed = allowed and not (embedding and side == "left")
        too_long = max_precond_dim is not None and size > max_precond_dim
        if allowed and too_long:
            reasons.append(f"the {side} side, {size}, is longer than max_precond_dim={max_precond_dim}")
        elif allowed and size < shortest_side:
            reasons.append(f"the {side} side has length {size}")
        sides.append(allowed and not too_long and size >= shortest_side)
    left, right = sides
    return Rule(shape, left, right, "; ".join(reasons) or "a matrix")


def matrix_shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape of a tensor seen as matrices: vectors as (1, n), orders above 3 as (first, rest)."""
    if tensor.ndim < 2:
        return 1, tensor.numel()
    return tuple(tensor.shape) if tensor.ndim <= 3 else (tensor.shape[0], math.prod(tensor.shape[1:]))


def shaped_like(tensor: Tensor, rule: Rule) -> Rule:
    """Return a parameter's rule for a tensor that stands for it, whole or a shard."""
    return replace(rule, shape=matrix_shape(tensor))


def treatment_of(name: str, rules: Rules | None) -> str | None:
    """Return the treatment of the first pattern that a parameter's name matches, as shell patterns match."""
    return next((t for pattern, t in (rules or {}).items() if fnmatchcase(name, pattern)), None)


def validate_rules(owner: str, rules: Any) -> None:
    """Raise ValueError unless rules are a mapping of name patterns to treatments."""
    if rules is not None and not isinstance(rules, Mapping):
        raise ValueError(f"{owner}: rules must map name patterns to treatments, got {type(rules).__name__}")
    for pattern, treatment in (rules or {}).items():
        if treatment not in TREATMENTS:
            listed = ", ".join(map(repr, TREATMENTS))
            raise ValueError(f"{owner}: rules give {pattern!r} {treatment!r}, it must be one of {listed}")


def rules_of(model: nn.Module) -> dict[str, Treatment]:
    """Return rules that leave a model's embeddings and output heads to Adam, for ``rules=``.

    A head is a Linear layer with as many outputs as the model's largest embedding has entries; where some Linear
    layer has as many inputs, so that hidden layers may have that many outputs too, only layers behind the last
    one with other outputs are heads. The names are those of ``model.named_parameters()``, which the optimizer
    must then be given.

    Args:
        model: The model that is trained.
    """
    names: dict[Tensor, str] = {
        parameter: name for name, parameter in reversed(list(model.named_parameters()))
    }
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
    vocabulary = max((module.num_embeddings for module in embeddings), default=0)
    heads = _heads([m for m in model.modules() if isinstance(m, nn.Linear)], vocabulary)
    return {names[module.weight]: "adam" for module in (*embeddings, *heads)}


def _heads(layers: list[nn.Linear], vocabulary: int) -> list[nn.Linear]:
    """Return the layers, given in the model's order, whose outputs are over a vocabulary."""
    if any(layer.in_features == vocabulary for layer in layers):
        others = [i for i, layer in enumerate(layers) if layer.out_features != vocabulary]
        layers = layers[others[-1] + 1 :] if others else layers
    return [layer for layer in layers if layer.out_features == vocabulary]


def as_matrices(tensor: Tensor, rule: Rule) -> Tensor:
    """Return a tensor seen as its rule's matrices: a view where strides allow, else a copy."""
    return shaped(tensor, rule.shape)


def shaped(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor in a shape: itself if it has that, which a step asks for every gradient."""
    return tensor if tensor.shape == shape else tensor.reshape(shape)


@contextmanager
def matrices(parameter: Tensor, rule: Rule) -> Iterator[Tensor]:
    """Yield a parameter as its rule's matrices, to write to; at the end the parameter has what was written."""
    matrix = as_matrices(parameter, rule)
    yield matrix
    give_back(parameter, matrix)


def give_back(parameter: Tensor, matrix: Tensor) -> None:
    """Copy what was written to `as_matrices` of a parameter into the parameter, unless it was a view."""
    if matrix.data_ptr() != parameter.data_ptr():
        parameter.copy_(matrix.view_as(parameter))
