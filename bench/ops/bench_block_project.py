"""Four parts of a gradient, and a parameter moved along them."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

import python_ref.block_project as ref
from bench.case import Case, Inputs, Results, Variant, compiled, normal, orthogonal, ours
from kpop_kernels.backends import _block_project as block_project

OPS = ("block_project", "block_lift_")
QUICK = ((256, 1024, 32), (768, 768, 64))
FULL = (*QUICK, (768, 3072, 128), (2048, 2048, 256))
ALPHA, BETA = -0.5, 0.9
PARTS = ("main", "A", "B", "C")


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield m×n with a rank for each operator; everything is float32."""
    for m, n, rank in QUICK if quick else FULL:
        yield _project(m, n, rank, device)
        yield _lift(m, n, rank, device)


def _project(m: int, n: int, rank: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        return {"G": normal((m, n), torch.float32, generator)} | _bases(m, n, rank, generator)

    def call(op: Callable[..., Any], inputs: Inputs) -> Results:
        return tuple(op(*inputs.values()))

    def written(inputs: Inputs) -> Results:
        out = _empty(m, n, rank)
        block_project.block_project(*inputs.values(), out=out)
        return out

    def projectors(inputs: Inputs) -> Results:
        """The parts as their definitions have them, by projectors that are formed."""
        G, U_L, U_R = inputs.values()
        P_L, P_R = (torch.eye(len(U), device=U.device) - U @ U.mT for U in (U_L, U_R))
        return U_L.mT @ G @ U_R, P_L @ G @ U_R, U_L.mT @ G @ P_R, P_L @ G @ P_R

    rivals = (
        Variant("torch.compile", torch.compile(written, dynamic=False)),
        Variant("projectors", projectors),
    )
    return _case(
        "block_project",
        (m, n, rank),
        2 * m * n,
        8 * m * n * rank,
        make,
        lambda inputs: ref.project(*inputs.values()),
        (*ours("block_project", call, device, torch.float32), *rivals),
    )


def _lift(m: int, n: int, rank: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        parts = {
            name: normal(tuple(part.shape), torch.float32, generator)
            for name, part in zip(PARTS, _empty(m, n, rank), strict=True)
        }
        return {"X": normal((m, n), torch.float32, generator)} | parts | _bases(m, n, rank, generator)

    def call(op: Callable[..., None], inputs: Inputs) -> Results:
        op(*inputs.values(), alpha=torch.tensor(ALPHA), beta=torch.tensor(BETA))
        return (inputs["X"],)

    def separately(inputs: Inputs) -> Results:
        """A direction made of four terms, then the step along it."""
        X, main, A, B, C, U_L, U_R = inputs.values()
        lift = U_L @ main @ U_R.mT + A @ U_R.mT + U_L @ B + C
        return (X.mul_(BETA).add_(lift, alpha=ALPHA),)

    def oracle(inputs: Inputs) -> Results:
        X, *parts = inputs.values()
        return (BETA * X.to(torch.float64) + ALPHA * ref.lift(*parts),)

    rivals = (compiled(block_project.block_lift_, call), Variant("torch, term by term", separately))
    return _case(
        "block_lift_",
        (m, n, rank),
        3 * m * n,
        4 * m * n * rank,
        make,
        oracle,
        (*ours("block_lift_", call, device, torch.float32), *rivals),
    )


def _bases(m: int, n: int, rank: int, generator: torch.Generator) -> Inputs:
    names = {"U_L": m, "U_R": n}
    return {k: orthogonal(side, torch.float32, generator)[:, :rank].contiguous() for k, side in names.items()}


def _empty(m: int, n: int, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty(rank, rank), torch.empty(m, rank), torch.empty(rank, n), torch.empty(m, n)


def _case(
    op: str,
    shape: tuple[int, int, int],
    elements: int,
    flops: int,
    make: Callable[[torch.Generator], Inputs],
    oracle: Callable[[Inputs], Results],
    variants: tuple[Variant, ...],
) -> Case:
    """Return a case that moves so many float32 elements beside thin matrices."""
    m, n, rank = shape
    return Case(
        op=op,
        shape=shape,
        dtype=torch.float32,
        bytes=4 * (elements + 2 * (m + n) * rank),
        flops=flops,
        make=make,
        oracle=oracle,
        bound=1e-5,
        variants=variants,
    )
