"""Muon's orthogonalization: five quintic steps, each a symmetric product, its square and a product."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim._muon import _zeropower_via_newtonschulz

import python_ref.newton_schulz
from bench import peers
from bench.case import Case, Inputs, Results, Variant, compiled, normal, ours
from kpop_kernels import coefficients
from kpop_kernels.backends.composite.newton_schulz import newton_schulz

OPS = ("newton_schulz",)
STEPS = 5
QUICK = ((128, 128), (256, 1024))
FULL = (*QUICK, (768, 768), (768, 3072))

# Rivals compute in 16 bits, whatever they are given.
SIXTEEN_BITS = 5e-2


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield m×n, square and wide."""
    for m, n in QUICK if quick else FULL:
        yield case(m, n, device)


def case(m: int, n: int, device: str) -> Case:
    """Return the orthogonalization of one m×n matrix, m ≤ n."""
    schedule: Any = coefficients.polar_schedule("muon", STEPS)

    def make(generator: torch.Generator) -> Inputs:
        X = normal((m, n), torch.float32, generator)
        return {"X": X, "out": torch.empty_like(X)}

    def call(op: Callable[..., object], inputs: Inputs) -> Results:
        flat = [float(c) for polynomial in schedule for c in polynomial]
        options: dict[str, Any] = {"method": "auto", "restarts": [2], "normalize": True, "eps": 0.0}
        op(inputs["X"], coefficients=flat, out=inputs["out"], **options)
        return (inputs["out"],)

    def oracle(inputs: Inputs) -> Results:
        return (python_ref.newton_schulz.map_singular_values(inputs["X"], schedule),)

    rivals: list[tuple[str, Callable[[Inputs], Any]]] = [("torch Muon", _torch_muon(schedule))]
    rivals += [(name, run) for name, run in (("gram_newton_schulz", _gram(schedule)),) if run is not None]
    return Case(
        op="newton_schulz",
        shape=(m, n),
        dtype=torch.float32,
        bytes=2 * 4 * m * n,
        flops=STEPS * (3 * m * m * n + m**3),
        make=make,
        oracle=oracle,
        bound=1e-4,
        variants=(
            *ours("newton_schulz", call, device, torch.float32),
            compiled(newton_schulz, call),
            *(Variant(name, run, oracle=oracle, bound=SIXTEEN_BITS) for name, run in rivals),
        ),
    )


def _torch_muon(schedule: Any) -> Callable[[Inputs], Results]:
    (constant,) = set(schedule)
    return lambda inputs: (_zeropower_via_newtonschulz(inputs["X"], constant, STEPS, 1e-7),)


def _gram(schedule: Any) -> Callable[[Inputs], Results] | None:
    """Return the peer without its kernels, which need a GPU of their kind; it overwrites its input."""
    if "gram_newton_schulz" not in peers.installed():
        return None

    quintics = [list(polynomial) for polynomial in schedule]

    def run(inputs: Inputs) -> Results:
        peer = peers.load("gram_newton_schulz")
        orthogonalize = peer.GramNewtonSchulz(
            ns_use_kernels=False, ns_coefficients=quintics, compile_kwargs=None
        )
        return (orthogonalize(inputs["X"].clone()),)

    return run
