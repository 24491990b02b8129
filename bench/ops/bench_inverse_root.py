"""Inverse roots A^(-1/p) of batches: against the route over eigenvalues, and against plain Newton–Schulz."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

import python_ref.inverse_root
from bench.case import Case, Inputs, Results, Variant, ours, spd
from bench.suite import ROOT
from kpop_kernels import coefficients

OPS = ("inverse_root", "inverse_root_foreach")
CONDITION = 1e3
BOUND = 2e-4
"""What the cushioned schedule promises in float32, and eigenvalues reach at this condition number."""

QUICK = ((128, 16), (64, 32), (16, 64), (4, 128), (1, 256))
FULL = (*QUICK, (8, 96), (1, 512), (1, 1024))
MIXED = (16, 24, 32, 33, 48, 64, 64, 96)
"""Orders of a list, such as the factors of one small model."""

STEPS = coefficients.inverse_root_schedule("cushioned")


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield batches of n×n, served by default and by Newton–Schulz alone, and a list of mixed sizes."""
    for batch, n in QUICK if quick else FULL:
        yield case(n, device, batch=batch)
        yield case(n, device, batch=batch, method="newton_schulz")
    if not quick:
        yield from (case(64, device, batch=16, p=p) for p in (1, 4))
    yield foreach_case(MIXED, device)


def case(n: int, device: str, *, batch: int = 1, p: int = 2, method: str = "auto") -> Case:
    """Return the roots of `batch` n×n matrices with condition number 1e3."""

    def make(generator: torch.Generator) -> Inputs:
        A = torch.stack([spd(n, CONDITION, generator) for _ in range(batch)]).to(torch.float32)
        return {"A": A, "out": torch.empty_like(A), "bound": torch.empty(batch)}

    options = ROOT | {"p": p, "method": method}
    rivals = {
        "auto": Variant("torch.linalg.eigh + product", partial(_eigh_route, p=p)),
        "newton_schulz": Variant("torch.baddbmm Newton–Schulz", _plain_newton_schulz),
    }
    return Case(
        op="inverse_root",
        shape=(n,) if batch == 1 else (batch, n),
        dtype=torch.float32,
        bytes=batch * 2 * 4 * n * n,
        flops=batch * (iteration_flops(n) if method == "newton_schulz" else eigh_flops(n)),
        make=make,
        oracle=lambda inputs: (python_ref.inverse_root.inverse_root(inputs["A"], p),),
        bound=BOUND,
        variants=(
            *ours("inverse_root", partial(_call, options=options), device, torch.float32),
            rivals[method],
        ),
        setting=" ".join(filter(None, ("" if p == 2 else f"p={p}", "" if method == "auto" else method))),
    )


def foreach_case(sizes: tuple[int, ...], device: str) -> Case:
    """Return the inverse square roots of a list of matrices in one call."""

    def make(generator: torch.Generator) -> Inputs:
        A = {f"A{i}": spd(n, CONDITION, generator).to(torch.float32) for i, n in enumerate(sizes)}
        out = {f"out{i}": torch.empty(n, n) for i, n in enumerate(sizes)}
        return A | out | {f"bound{i}": torch.empty(()) for i in range(len(sizes))}

    def listed(inputs: Inputs, name: str) -> list[Tensor]:
        return [inputs[f"{name}{i}"] for i in range(len(sizes))]

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        out = listed(inputs, "out")
        op(listed(inputs, "A"), out, listed(inputs, "bound"), **ROOT)
        return out

    def one_by_one(inputs: Inputs) -> Results:
        return [_eigh_root(A, 2) for A in listed(inputs, "A")]

    return Case(
        op="inverse_root_foreach",
        shape=sizes,
        dtype=torch.float32,
        bytes=sum(2 * 4 * n * n for n in sizes),
        flops=sum(eigh_flops(n) for n in sizes),
        make=make,
        oracle=lambda inputs: [python_ref.inverse_root.inverse_root(A, 2) for A in listed(inputs, "A")],
        bound=BOUND,
        variants=(
            *ours("inverse_root_foreach", call, device, torch.float32),
            Variant("torch.linalg.eigh + product", one_by_one),
        ),
    )


def eigh_flops(n: int) -> int:
    """Return the operations over eigenvalues, the fewest known: 16/3·n³, then one triangle of a product."""
    return 16 * n**3 // 3 + n * n * (n + 1)


def iteration_flops(n: int) -> int:
    """Return those of the coupled iteration: every P in full, one triangle of every Y and Z.

    The first step needs neither P nor a product for Z, the last one no Y.
    """
    steps = len(STEPS)
    return (steps - 1) * 2 * n**3 + (2 * steps - 2) * n * n * (n + 1)


def _call(op: Callable[..., object], inputs: Inputs, options: dict[str, Any]) -> Results:
    op(inputs["A"], **options, out=(inputs["out"], inputs["bound"]))
    return (inputs["out"],)


def _eigh_route(inputs: Inputs, p: int) -> Results:
    return (_eigh_root(inputs["A"], p),)


def _eigh_root(A: Tensor, p: int) -> Tensor:
    eigvals, Q = torch.linalg.eigh(A)
    return (Q * eigvals[..., None, :] ** (-1 / p)) @ Q.mT


def _plain_newton_schulz(inputs: Inputs) -> Results:
    """The same steps by full products, normalized by the largest row sum."""
    A = inputs["A"]
    L = 1.01 * A.abs().sum(-1).amax(-1)[:, None, None]
    Y = A / L
    Z = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device).expand_as(A)
    for a, b in STEPS[:-1]:
        P = torch.bmm(Z, Y)
        Y, Z = torch.baddbmm(Y, Y, P, beta=a, alpha=b), torch.baddbmm(Z, P, Z, beta=a, alpha=b)
    a, b = STEPS[-1]
    return (torch.baddbmm(Z, torch.bmm(Z, Y), Z, beta=a, alpha=b) / L.sqrt(),)
