"""Moments into a refreshed basis: four products, moments and changes of basis once through memory."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import python_ref.kron
from bench.case import Case, Inputs, Results, Variant, compiled, normal, orthogonal, ours
from kpop_kernels.backends.composite.kron import rebase_moments_

OPS = ("rebase_moments_",)
QUICK = ((96, 256), (768, 768))
FULL = (*QUICK, (768, 3072), (2048, 2048))


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield m×n; moments are float32."""
    for m, n in QUICK if quick else FULL:
        yield case(m, n, device)


def case(m: int, n: int, device: str, *, batch: int = 1) -> Case:
    """Return the change of basis of `batch` m×n pairs of moments."""

    def make(generator: torch.Generator) -> Inputs:
        return {
            "exp_avg": normal((batch, m, n), torch.float32, generator),
            "exp_avg_sq": normal((batch, m, n), torch.float32, generator).square(),
            "P_L": orthogonal(m, torch.float32, generator).repeat(batch, 1, 1),
            "P_R": orthogonal(n, torch.float32, generator).repeat(batch, 1, 1),
        }

    return Case(
        op="rebase_moments_",
        shape=(m, n) if batch == 1 else (batch, m, n),
        dtype=torch.float32,
        bytes=batch * 4 * (4 * m * n + m * m + n * n),
        flops=batch * 4 * m * n * (m + n),
        make=make,
        oracle=_oracle,
        bound=1e-5,
        variants=(
            *ours("rebase_moments_", _call, device, torch.float32),
            compiled(rebase_moments_, _call),
            Variant("torch.matmul", _matmul),
        ),
    )


def _call(op: Callable[..., None], inputs: Inputs) -> Results:
    op(*inputs.values())
    return inputs["exp_avg"], inputs["exp_avg_sq"]


def _oracle(inputs: Inputs) -> tuple[Tensor, ...]:
    return python_ref.kron.rebase_moments(*inputs.values())


def _matmul(inputs: Inputs) -> Results:
    m, v, P_L, P_R = inputs.values()
    m.copy_(P_L @ m @ P_R.mT)
    v.copy_(P_L.square() @ v @ P_R.square().mT)
    return m, v
