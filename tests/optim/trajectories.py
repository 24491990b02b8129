"""Random gradients through an optimizer and, matrix by matrix, through its oracle."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

SHAPES = ((1, 1), (1, 7), (3, 5), (8, 8), (40, 17), (2, 3, 5), (4, 3, 2, 2))
"""Matrices of every kind, a stack of two, and a convolution's kernel."""


def matrices_of(tensor: Tensor) -> Tensor:
    """The matrices of a parameter, (e, m, n): a stack as it is, a kernel (out, in, h, w) as (1, out, in·h·w)."""
    if tensor.ndim == 3:
        return tensor
    return tensor.reshape(1, tensor.shape[0], -1)


def gradients(shape: Sequence[int], steps: int, seed: int = 0) -> Iterator[Tensor]:
    """Normal gradients in float64 whose columns have sizes from 1 to 0.1."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        G = matrices_of(torch.randn(tuple(shape), generator=generator, dtype=torch.float64))
        yield (G * torch.logspace(0, -1, G.shape[-1], dtype=torch.float64)).reshape(tuple(shape))


def run(
    shape: Sequence[int],
    make_optimizer: Callable[[list[nn.Parameter]], Optimizer],
    make_oracle: Callable[[Tensor], Any],
    *,
    steps: int = 20,
    dtype: torch.dtype = torch.float64,
) -> Iterator[tuple[Tensor, Tensor, Optimizer, list[Any]]]:
    """Yield (values, the oracles' values, optimizer, oracles) after each step, values as (e, m, n) in float64."""
    generator = torch.Generator().manual_seed(1)
    parameter = nn.Parameter(torch.randn(tuple(shape), generator=generator, dtype=torch.float64).to(dtype))
    oracles = [make_oracle(W.clone()) for W in matrices_of(parameter.detach().double())]
    optimizer = make_optimizer([parameter])
    for G in gradients(shape, steps):
        parameter.grad = G.to(dtype)
        optimizer.step()
        expected = torch.stack(
            [oracle.step(g) for oracle, g in zip(oracles, matrices_of(parameter.grad.double()), strict=True)]
        )
        yield matrices_of(parameter.detach().double()), expected, optimizer, oracles
