"""What a problem of an operator is, and the random matrices in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

M, N = 96, 65


@dataclass(frozen=True)
class Problem:
    """Arguments of an operator and the oracle's function of the same arguments.

    Attributes:
        tensors: Tensor arguments in order, in the dtypes the operator is called with, on the CPU; lists for
            operators on lists.
        scalars: Keyword arguments.
        oracle: Returns the operator's results and then the arguments it writes, in the operator's order:
            in float64, or in the operator's own dtypes where bits are promised.
        zero_dim: Keyword arguments that the operator takes as 0-d tensors and the oracle as numbers.
        bound: Largest relative Frobenius error, in units of the result's machine epsilon.
    """

    tensors: Mapping[str, Tensor | list[Tensor]]
    scalars: Mapping[str, Any]
    oracle: Callable[..., Any]
    zero_dim: Mapping[str, Any] = field(default_factory=dict)
    bound: float = 16.0

    def expected(self) -> tuple[Tensor, ...]:
        """Return the oracle's answer."""
        return tuple(flat(self.oracle(*self.tensors.values(), **self.scalars, **self.zero_dim)))


def flat(value: Any) -> list[Tensor]:
    """Return the tensors of nested lists and tuples, in order."""
    return [value] if isinstance(value, Tensor) else [tensor for item in value for tensor in flat(item)]


def normal(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal random numbers."""
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def orthogonal(n: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return a random orthogonal matrix."""
    return torch.linalg.qr(normal((n, n), torch.float64, generator)).Q.to(dtype)
