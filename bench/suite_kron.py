"""Problems of the operators on Kronecker factors."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import python_ref.block_project
import python_ref.eigenbasis
import python_ref.gram
import python_ref.kron
import python_ref.nystrom
import python_ref.quantize as ref
import python_ref.whiten
from bench.problem import M, N, Problem, normal, orthogonal
from kpop_kernels._schema import compute_dtype

R = 8


def _gram_ema(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    root = normal((M, M), torch.float64, generator)
    tensors = {"S": (root @ root.mT / M).to(dtype), "X": normal((M, N), dtype, generator)}
    return Problem(tensors, {"beta": 0.9, "alpha": 0.1 / N, "side": "left"}, python_ref.gram.gram_ema)


def _kron_rotate(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    tensors = {
        "G": normal((M, N), dtype, generator),
        "Q_L": orthogonal(M, dtype, generator),
        "Q_R": orthogonal(N, dtype, generator),
    }
    return Problem(tensors, {"inverse": False}, python_ref.kron.rotate)


def _kron_adam(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    tensors = {
        "param": normal((M, N), dtype, generator),
        "grad": normal((M, N), dtype, generator),
        "exp_avg": normal((M, N), torch.float32, generator),
        "exp_avg_sq": normal((M, N), torch.float32, generator).square(),
        "Q_L": orthogonal(M, torch.float32, generator),
        "Q_R": orthogonal(N, torch.float32, generator),
    }
    scalars = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
    return Problem(tensors, scalars, python_ref.kron.adam, zero_dim={"lr": 0.1, "step": 7})


def _rebase_moments(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    tensors = {
        "exp_avg": normal((M, N), dtype, generator),
        "exp_avg_sq": normal((M, N), dtype, generator).square(),
        "P_L": orthogonal(M, dtype, generator),
        "P_R": orthogonal(N, dtype, generator),
    }
    return Problem(tensors, {}, python_ref.kron.rebase_moments)


def _kron_adam8(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    """Bases that only permute and flip signs, so that the rotated gradient and with it all bits are known."""

    def oracle(
        param: Tensor, grad: Tensor, *rest: Tensor, lr: float, weight_decay: float, **scalars: Any
    ) -> Any:
        *moments, Q_L, Q_R = rest
        G = python_ref.kron.rotate(grad, Q_L, Q_R).to(torch.float32)
        blocks = ref.Affine(*moments[:3]), ref.Dynamic(*moments[3:])
        moved = ref.adam8(torch.zeros_like(G), G, *blocks, lr=lr, weight_decay=0.0, **scalars)
        update = python_ref.kron.rotate(moved.param, Q_L, Q_R, inverse=True)
        new = (1 - lr * weight_decay) * param.to(torch.float64) + update
        return new, *moved.exp_avg, *moved.exp_avg_sq

    old = normal((M, N), torch.float32, generator)
    affine, dynamic = ref.quantize_int8(old), ref.quantize_dynamic8(old.square())
    tensors = {name: normal((M, N), dtype, generator) for name in ("param", "grad")}
    tensors |= {f"exp_avg_{name}": tensor for name, tensor in affine._asdict().items()}
    tensors |= {f"exp_avg_sq_{name}": tensor for name, tensor in dynamic._asdict().items()}
    tensors |= {"Q_L": -torch.eye(M).roll(5, 0), "Q_R": torch.eye(N).flip(0)}
    scalars = {
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
        "weight_decay": 0.1,
        "seed": 5,
        "stream": 3,
        "offset": 8,
    }
    return Problem(tensors, scalars, oracle, zero_dim={"lr": 0.125, "step": 7})


def _whiten(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    tensors = {
        "G": normal((M, N), dtype, generator),
        "P_L": normal((M, M), dtype, generator),
        "P_R": normal((N, N), dtype, generator),
    }
    return Problem(tensors, {}, python_ref.whiten.whiten)


def _whiten_update(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    tensors = {"param": normal((M, N), dtype, generator)} | dict(_whiten(dtype, generator).tensors)
    scalars = {"weight_decay": 0.1, "scale": 0.5}
    return Problem(tensors, scalars, python_ref.whiten.whiten_update, zero_dim={"lr": 0.125})


def _kl_gram_ema(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    G, P_a, P_b = _whiten(dtype, generator).tensors.values()
    tensors = {
        "S_a": torch.eye(M, dtype=dtype),
        "S_b": torch.eye(N, dtype=dtype),
        "G": G,
        "P_a": P_a,
        "P_b": P_b,
    }
    return Problem(tensors, {"beta": 0.9, "eps": 1e-3}, python_ref.whiten.kl_gram_ema)


def _refresh_eigenbasis(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    def oracle(S: Tensor, Q: Tensor, **_: Any) -> Any:
        return *python_ref.eigenbasis.refresh(S, Q), torch.tensor(False)

    exact = orthogonal(N, torch.float64, generator)
    S = (exact * torch.arange(1.0, N + 1, dtype=torch.float64)) @ exact.mT
    S = S.to(dtype)
    tensors = {"S": S.tril() + S.tril(-1).mT, "Q": orthogonal(N, compute_dtype(S), generator)}
    return Problem(tensors, {"method": "eigh", "sort": True}, oracle, bound=1e4)


def _nystrom_eigh(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    def oracle(
        G: Tensor,
        U: Tensor,
        eigvals: Tensor,
        Psi: Tensor,
        *,
        rank: int,
        power_iterations: int,
        beta: float,
        side: str,
    ) -> Any:
        G, U, eigvals, Psi = (t.to(torch.float64) for t in (G, U, eigvals, Psi))
        A = beta * U * eigvals @ U.mT + (1 - beta) * G @ G.mT
        return *python_ref.nystrom.nystrom(A, Psi, U, rank, power_iterations), torch.tensor(False)

    G = orthogonal(M, torch.float64, generator)[:, :N] * torch.logspace(0, -3, N, dtype=torch.float64)
    G = (G @ orthogonal(N, torch.float64, generator)).to(dtype)
    compute = compute_dtype(G)
    tensors = {
        "G": G,
        "U": orthogonal(M, compute, generator)[:, :R],
        "eigvals": torch.linspace(0.1, 0.01, R, dtype=compute),
        "Psi": normal((M, 4), compute, generator),
    }
    scalars = {"rank": R, "power_iterations": 1, "beta": 0.5, "side": "left"}
    return Problem(tensors, scalars, oracle, bound=1e4)


def _in_bases(dtype: torch.dtype, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    G = normal((M, N), dtype, generator)
    U_L, U_R = (orthogonal(k, compute_dtype(G), generator)[:, :R] for k in (M, N))
    return G, U_L, U_R


def _block_project(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    tensors = dict(zip(("G", "U_L", "U_R"), _in_bases(dtype, generator), strict=True))
    return Problem(tensors, {}, python_ref.block_project.project)


def _block_lift(dtype: torch.dtype, generator: torch.Generator) -> Problem:
    def oracle(X: Tensor, *parts: Tensor, alpha: float, beta: float) -> Tensor:
        return beta * X.to(torch.float64) + alpha * python_ref.block_project.lift(*parts)

    X, U_L, U_R = _in_bases(dtype, generator)
    shapes = {"main": (R, R), "A": (M, R), "B": (R, N), "C": (M, N)}
    parts = {name: normal(shape, compute_dtype(X), generator) for name, shape in shapes.items()}
    tensors = {"X": X} | parts | {"U_L": U_L, "U_R": U_R}
    return Problem(tensors, {}, oracle, zero_dim={"alpha": -0.125, "beta": 0.75})


PROBLEMS: dict[str, Callable[[torch.dtype, torch.Generator], Problem]] = {
    "gram_ema_": _gram_ema,
    "kron_rotate": _kron_rotate,
    "kron_adam_": _kron_adam,
    "kron_adam8_": _kron_adam8,
    "rebase_moments_": _rebase_moments,
    "whiten": _whiten,
    "whiten_update_": _whiten_update,
    "kl_gram_ema_": _kl_gram_ema,
    "refresh_eigenbasis": _refresh_eigenbasis,
    "nystrom_eigh": _nystrom_eigh,
    "block_project": _block_project,
    "block_lift_": _block_lift,
}
