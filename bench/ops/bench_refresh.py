"""The refresh of a basis by torch.linalg.eigh, the bar for anything that would replace it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bench.case import Case, Inputs, Results, Variant, spd

OPS = ("refresh",)
QUICK = (64, 128, 256, 512)
FULL = (*QUICK, 768, 1024, 2048)
CONDITION = 1e4


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield n for factors of small and of long sides."""
    for n in QUICK if quick else FULL:
        yield case(n)


def case(n: int, *, batch: int = 1) -> Case:
    """Return the eigenbases of `batch` factors."""

    def make(generator: torch.Generator) -> Inputs:
        return {"S": torch.stack([spd(n, CONDITION, generator) for _ in range(batch)]).to(torch.float32)}

    return Case(
        op="refresh",
        shape=(n,) if batch == 1 else (batch, n),
        dtype=torch.float32,
        bytes=batch * 2 * 4 * n * n,
        flops=batch * flops(n),
        make=make,
        oracle=_itself,
        bound=1e-5,
        variants=(
            Variant("torch.linalg.eigh", _eigh, value=_recomposed),
            Variant("torch.linalg.qr step", _qr_step, value=identity, oracle=orthonormal, bound=1e-5),
        ),
    )


def flops(n: int) -> int:
    """Return the operations of an eigendecomposition: 4/3·n³ to the tridiagonal form and 4·n³ for the vectors."""
    return 16 * n**3 // 3


def _eigh(inputs: Inputs) -> Any:
    return torch.linalg.eigh(inputs["S"])


def _qr_step(inputs: Inputs) -> Tensor:
    """One step of orthogonal iteration, which SOAP takes in place of a decomposition. Not an eigenbasis yet."""
    return torch.linalg.qr(inputs["S"]).Q


def _itself(inputs: Inputs) -> Results:
    return (inputs["S"].to(torch.float64),)


def _recomposed(found: Any) -> Results:
    """Return Q Λ Qᵀ, which must be the matrix."""
    eigvals, Q = (tensor.to(torch.float64) for tensor in found)
    return ((Q * eigvals[..., None, :]) @ Q.mT,)


def identity(Q: Tensor) -> Results:
    """Return Q Qᵀ."""
    Q = Q.to(torch.float64)
    return (Q @ Q.mT,)


def orthonormal(inputs: Inputs) -> Results:
    """Return the identity of the factors' shape."""
    return (torch.eye(inputs["S"].shape[-1], dtype=torch.float64).expand_as(inputs["S"]),)
