"""Checks of hyper-parameters; every message names the optimizer, the hyper-parameter and what is allowed."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor


def require_nonnegative(owner: str, **values: Any) -> None:
    """Raise ValueError for a negative hyper-parameter, or a tensor of more than one element."""
    for name, value in values.items():
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"{owner}: Tensor {name} must be 1-element, it has {value.numel()} elements")
        if not value >= 0.0:
            raise ValueError(f"{owner}: {name} is {value}, it must not be negative")


def require_fractions(owner: str, **values: float | Iterable[float]) -> None:
    """Raise ValueError for decays outside 0 <= value < 1."""
    for name, given in values.items():
        for value in given if isinstance(given, Iterable) else (given,):
            if not 0.0 <= value < 1.0:
                raise ValueError(f"{owner}: {name} holds {value}, it must be at least 0 and below 1")


def require_positive(owner: str, **values: int) -> None:
    """Raise ValueError for counts and lengths below 1."""
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{owner}: {name} is {value}, it must be at least 1")


def require_choices(owner: str, group: Mapping[str, Any], **allowed: tuple[str, ...]) -> None:
    """Raise ValueError for a hyper-parameter of a group that is none of those allowed."""
    for name, choices in allowed.items():
        if group[name] not in choices:
            listed = ", ".join(map(repr, choices))
            raise ValueError(f"{owner}: {name} is {group[name]!r}, it must be one of {listed}")
