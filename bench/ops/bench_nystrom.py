"""Leading eigenpairs from a sketch, beside the eigendecomposition of the factor that it never forms."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from bench.case import Case, Inputs, Results, Variant, orthogonal, ours

OPS = ("nystrom_eigh",)
QUICK = ((256, 1024, 32), (768, 768, 64))
FULL = (*QUICK, (768, 3072, 128), (2048, 2048, 256))
OVERSAMPLING = 8
SETTINGS: dict[str, Any] = {"power_iterations": 1, "beta": 0.95, "side": "left"}


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield m×n gradients with a rank."""
    for m, n, rank in QUICK if quick else FULL:
        yield case(m, n, rank, device)


def case(m: int, n: int, rank: int, device: str) -> Case:
    """Return a warm start whose old eigenvectors span those of the gradient, so that the answer is exact."""

    def make(generator: torch.Generator) -> Inputs:
        U = orthogonal(m, torch.float32, generator)[:, :rank].contiguous()
        values = torch.logspace(0, -2, rank)
        return {
            "G": (U * values.sqrt()) @ orthogonal(n, torch.float32, generator)[:rank],
            "U": U,
            "eigvals": values,
            "Psi": torch.randn((m, OVERSAMPLING), generator=generator),
        }

    def call(op: Callable[..., Any], inputs: Inputs) -> Results:
        found = op(*inputs.values(), rank=rank, **SETTINGS)
        return found[0], found[1]

    def eigh(inputs: Inputs) -> Results:
        G, U, eigvals, _ = inputs.values()
        A = SETTINGS["beta"] * (U * eigvals) @ U.mT + (1 - SETTINGS["beta"]) * G @ G.mT
        values, vectors = torch.linalg.eigh(A)
        return vectors[:, -rank:].flip(1), values[-rank:].flip(0)

    columns = rank + OVERSAMPLING
    products = 4 * m * n + 4 * m * rank
    return Case(
        op="nystrom_eigh",
        shape=(m, n, rank),
        dtype=torch.float32,
        bytes=4 * (2 * m * n + m * columns),
        flops=2 * products * columns,
        make=make,
        oracle=lambda inputs: _recomposed((inputs["U"], inputs["eigvals"])),
        bound=1e-4,
        variants=(
            *(_judged(variant) for variant in ours("nystrom_eigh", call, device, torch.float32)),
            Variant("torch.linalg.eigh", eigh, value=_recomposed),
        ),
    )


def _judged(variant: Variant) -> Variant:
    return Variant(variant.name, variant.run, ours=True, value=_recomposed)


def _recomposed(found: Any) -> Results:
    """Return U Λ Uᵀ: the gradient's factor has the old eigenpairs, and so has the average."""
    U, eigvals = (tensor.to(torch.float64) for tensor in found)
    return ((U * eigvals) @ U.mT,)
