"""Whitening on both sides, the parameter moved along it, and the factors of KL-Shampoo."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

import python_ref.whiten
from bench.case import Case, Inputs, Results, Variant, compiled, normal, orthogonal, ours
from kpop_kernels.backends.composite import whiten

OPS = ("whiten", "whiten_update_", "kl_gram_ema_")
QUICK = ((96, 256), (768, 768))
FULL = (*QUICK, (256, 1024), (768, 3072), (2048, 2048))
LR = 1.0
UPDATE: dict[str, Any] = {"weight_decay": 0.1, "scale": 0.5}
KL: dict[str, Any] = {"beta": 0.95, "eps": 1e-9}


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield m×n for each operator; everything is float32."""
    for m, n in QUICK if quick else FULL:
        yield _whiten(m, n, device)
        yield _whiten_update(m, n, device)
        yield _kl_gram_ema(m, n, device)


def _whiten(m: int, n: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        return _factored(m, n, generator) | {"out": torch.empty(m, n)}

    def call(op: Callable[..., None], inputs: Inputs) -> Results:
        *tensors, out = inputs.values()
        op(*tensors, out=out)
        return (out,)

    def matmul(inputs: Inputs) -> Results:
        G, P_L, P_R, out = inputs.values()
        return (torch.mm(P_L @ G, P_R, out=out),)

    def oracle(inputs: Inputs) -> Results:
        G, P_L, P_R, _ = inputs.values()
        return (python_ref.whiten.whiten(G, P_L, P_R),)

    rival = Variant("torch.matmul", matmul)
    return _case("whiten", m, n, 2 * m * n, make, call, oracle, whiten.whiten, device, rival)


def _whiten_update(m: int, n: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        return {"param": normal((m, n), torch.float32, generator)} | _factored(m, n, generator)

    def call(op: Callable[..., None], inputs: Inputs) -> Results:
        op(*inputs.values(), lr=torch.tensor(LR, dtype=torch.float64), **UPDATE)
        return (inputs["param"],)

    def matmul(inputs: Inputs) -> Results:
        param, G, P_L, P_R = inputs.values()
        param.mul_(1 - LR * UPDATE["weight_decay"])
        return (param.sub_(P_L @ G @ P_R, alpha=LR * UPDATE["scale"]),)

    def oracle(inputs: Inputs) -> Results:
        return (python_ref.whiten.whiten_update(*inputs.values(), lr=LR, **UPDATE),)

    rival = Variant("torch.matmul", matmul)
    return _case("whiten_update_", m, n, 3 * m * n, make, call, oracle, whiten.whiten_update_, device, rival)


def _kl_gram_ema(m: int, n: int, device: str) -> Case:
    def make(generator: torch.Generator) -> Inputs:
        return {"S_a": torch.eye(m), "S_b": torch.eye(n)} | _factored(m, n, generator)

    def call(op: Callable[..., None], inputs: Inputs) -> Results:
        op(*inputs.values(), **KL)
        return inputs["S_a"], inputs["S_b"]

    def matmul(inputs: Inputs) -> Results:
        """Both triangles, and not exactly symmetric."""
        S_a, S_b, G, P_a, P_b = inputs.values()
        right, left = G @ P_b, P_a @ G
        torch.addmm(S_a, right, right.mT, beta=KL["beta"], alpha=(1 - KL["beta"]) / n, out=S_a)
        torch.addmm(S_b, left.mT, left, beta=KL["beta"], alpha=(1 - KL["beta"]) / m, out=S_b)
        S_a.diagonal().add_(KL["eps"])
        S_b.diagonal().add_(KL["eps"])
        return S_a, S_b

    def oracle(inputs: Inputs) -> Results:
        return python_ref.whiten.kl_gram_ema(*inputs.values(), **KL)

    elements = m * n + 2 * (m * m + n * n)
    rival = Variant("torch.matmul", matmul)
    flops = 2 * m * n * (m + n) + m * n * (m + 1) + m * n * (n + 1)
    function = whiten.kl_gram_ema_
    return _case("kl_gram_ema_", m, n, elements, make, call, oracle, function, device, rival, flops=flops)


def _factored(m: int, n: int, generator: torch.Generator) -> Inputs:
    return {
        "G": normal((m, n), torch.float32, generator),
        "P_L": orthogonal(m, torch.float32, generator),
        "P_R": orthogonal(n, torch.float32, generator),
    }


def _case(
    op: str,
    m: int,
    n: int,
    elements: int,
    make: Callable[[torch.Generator], Inputs],
    call: Callable[[Callable[..., Any], Inputs], Results],
    oracle: Callable[[Inputs], Results],
    composite: Callable[..., Any],
    device: str,
    rival: Variant,
    *,
    flops: int | None = None,
) -> Case:
    """Return a case that moves so many float32 elements beside both factors."""
    return Case(
        op=op,
        shape=(m, n),
        dtype=torch.float32,
        bytes=4 * (elements + m * m + n * n),
        flops=2 * m * n * (m + n) if flops is None else flops,
        make=make,
        oracle=oracle,
        bound=1e-5,
        variants=(*ours(op, call, device, torch.float32), compiled(composite, call), rival),
    )
