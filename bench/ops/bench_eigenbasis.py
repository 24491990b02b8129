"""The refresh of a basis that is nearly right: decomposition or a step of QR, signs, order, change of basis."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from bench.case import Case, Inputs, Variant, ours, spd
from bench.ops.bench_refresh import CONDITION, flops, identity, orthonormal

OPS = ("refresh_eigenbasis",)
QUICK = (64, 256)
FULL = (*QUICK, 128, 512, 768, 1024, 2048)


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield n for factors of small and of long sides, by both methods."""
    for n in QUICK if quick else FULL:
        for method in ("eigh", "qr"):
            yield case(n, method, device)


def case(n: int, method: str, device: str) -> Case:
    """Return the refresh of a factor's basis that was off by a rotation of about 1 %."""

    def make(generator: torch.Generator) -> Inputs:
        S = spd(n, CONDITION, generator)
        turn = torch.randn((n, n), generator=generator, dtype=torch.float64) * (0.01 / n**0.5)
        old = torch.linalg.eigh(S).eigenvectors.flip(1) @ torch.linalg.matrix_exp(turn - turn.mT)
        return {"S": S.to(torch.float32), "Q": old.to(torch.float32)}

    def call(op: Callable[..., Any], inputs: Inputs) -> Tensor:
        return op(inputs["S"], inputs["Q"], method=method)[0]

    own = ours("refresh_eigenbasis", call, device, torch.float32)
    rival = _decompose if method == "eigh" else _iterate
    return Case(
        op="refresh_eigenbasis",
        shape=(n,),
        dtype=torch.float32,
        bytes=4 * 4 * n * n,
        flops=flops(n) if method == "eigh" else 22 * n**3 // 3,
        make=make,
        oracle=orthonormal,
        bound=1e-5,
        variants=(
            *(Variant(v.name, v.run, ours=True, value=identity) for v in own),
            Variant(f"torch.linalg.{method}", rival, value=identity),
        ),
        setting=method,
    )


def _decompose(inputs: Inputs) -> Tensor:
    """As optimizers have it: the decomposition, reversed, and the change of basis."""
    Q = torch.linalg.eigh(inputs["S"]).eigenvectors.flip(-1)
    _ = Q.mT @ inputs["Q"]
    return Q


def _iterate(inputs: Inputs) -> Tensor:
    """As SOAP has it: Rayleigh quotients, sorted columns, QR of the product, and the change of basis."""
    S, Q = inputs["S"], inputs["Q"]
    order = (Q * (S @ Q)).sum(0).argsort(descending=True)
    new = torch.linalg.qr(S @ Q[:, order]).Q
    _ = new.mT @ Q
    return new
