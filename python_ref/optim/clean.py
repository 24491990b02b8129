"""Clean on one matrix W (m, n).

With P = I - UUᵀ on each side, a step t = 1, 2, ... with gradient G is

    at a refresh: U, Λ ← leading eigenpairs of βUΛUᵀ + (1-β) GGᵀ (right: GᵀG); moments carried over
    S = U_Lᵀ G U_R    A = P_L G U_R    B = U_Lᵀ G P_R    C = P_L G P_R
    M, M_A, M_B ← averages of S, A, B;   V ← average of S²
    v_A, v_B, v_C ← averages of the squares of A's columns, B's rows and C, summed or meant
    W ← (1 - lr·weight_decay) W - lr·alpha·(U_L N(M,V) U_Rᵀ + N(M_A,v_A) U_Rᵀ + U_L N(M_B,v_B) + N(C,v_C))

where N(M, v) = M̂/(√v̂ + eps) with bias correction, and the norm of what is limited may grow by gamma a step.
Refreshes are steps 1, f + 1, 2f + 1, ...; the random columns of a refresh are given.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from python_ref.block_project import project
from python_ref.nystrom import nystrom

Sketch = Callable[[int, str, int], Tensor]
"""The random columns of a refresh: from its step, its side and their number."""


@dataclass
class Clean:
    """The state of one matrix and its hyper-parameters."""

    W: Tensor
    lr: float
    sketch: Sketch
    rank: int
    oversampling: int = 8
    power_iterations: int = 1
    beta1: float = 0.95
    beta2: float = 0.95
    shampoo_beta: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    frequency: int = 10
    pool_sum: bool = False
    alpha: float = 1.0
    gamma: float = 1.01
    limiter_scope: str = "C"
    exact_transport: bool = False
    bound: float = math.inf
    noise: float = 1e-5
    step_count: int = 0
    bases: list[Tensor | None] = field(init=False)
    eigvals: list[Tensor] = field(init=False)
    M: Tensor = field(init=False)
    M_A: Tensor = field(init=False)
    M_B: Tensor = field(init=False)
    V: Tensor = field(init=False)
    v_A: Tensor = field(init=False)
    v_B: Tensor = field(init=False)
    v_C: Tensor = field(init=False)
    limited_norm: float = 0.0

    def __post_init__(self) -> None:
        """Start from no bases and zero moments."""
        self.W = self.W.detach().to(torch.float64, copy=True)
        m, n = self.W.shape
        r = self.rank = min(self.rank, m, n)
        zeros = {"M": (r, r), "M_A": (m, r), "M_B": (r, n), "V": (r, r), "v_A": (r,), "v_B": (r,), "v_C": ()}
        for name, shape in zeros.items():
            setattr(self, name, torch.zeros(shape, dtype=torch.float64))
        self.bases, self.eigvals = [None, None], [torch.zeros(r, dtype=torch.float64)] * 2

    def step(self, G: Tensor) -> Tensor:
        """Take one step and return W."""
        G = G.detach().to(torch.float64)
        self.step_count += 1
        if (self.step_count - 1) % self.frequency == 0:
            self._refresh(G)
        U_L, U_R = self.bases
        assert U_L is not None and U_R is not None
        direction = self._direction(G, U_L, U_R)
        self.keep_moments()
        self.W = (1 - self.lr * self.weight_decay) * self.W - self.alpha * self.lr * direction
        return self.W

    def keep_bases(self) -> None:
        """Round new bases as they are kept; here they are exact."""

    def keep_moments(self) -> None:
        """Round moments as they are kept; here they are exact."""

    def _refresh(self, G: Tensor) -> None:
        old = list(self.bases)
        for i, (side, gram) in enumerate((("left", G @ G.T), ("right", G.T @ G))):
            U, A = self.bases[i], (1 - self.shampoo_beta) * gram
            if U is not None:
                A = A + self.shampoo_beta * U @ torch.diag(self.eigvals[i]) @ U.T
            columns = min(self.oversampling, len(A) - self.rank) + (self.rank if U is None else 0)
            Psi = self.sketch(self.step_count, side, columns)
            self.bases[i], self.eigvals[i] = nystrom(A, Psi, U, self.rank, self.power_iterations)
        self.keep_bases()
        old_L, old_R = old
        if old_L is not None and old_R is not None:
            self._transport(old_L, old_R)

    def _transport(self, old_L: Tensor, old_R: Tensor) -> None:
        U_L, U_R = self.bases
        assert U_L is not None and U_R is not None
        R_L, R_R = U_L.T @ old_L, old_R.T @ U_R
        if self.exact_transport:
            whole = old_L @ self.M @ old_R.T + self.M_A @ old_R.T + old_L @ self.M_B
            self.M, M_A, M_B, _ = project(whole, U_L, U_R)
            self.M_A = self._without_noise(M_A, whole, complete=self.rank == len(U_L))
            self.M_B = self._without_noise(M_B, whole, complete=self.rank == len(U_R))
        else:
            self.M = R_L @ self.M @ R_R
            self.M_A = self.M_A @ R_R - U_L @ U_L.T @ self.M_A @ R_R
            self.M_B = R_L @ self.M_B - R_L @ self.M_B @ U_R @ U_R.T
        self.v_A, self.v_B = self.v_A @ R_R**2, R_L**2 @ self.v_B

    def _direction(self, G: Tensor, U_L: Tensor, U_R: Tensor) -> Tensor:
        (m, n), b1, b2 = G.shape, self.beta1, self.beta2
        S, A, B, C = project(G, U_L, U_R)
        A = self._without_noise(A, G, complete=self.rank == m)
        B = self._without_noise(B, G, complete=self.rank == n)
        C = self._without_noise(C, G, complete=self.rank in (m, n))
        counts = (1, 1, 1) if self.pool_sum else (m, n, m * n)
        self.M = b1 * self.M + (1 - b1) * S
        self.M_A = b1 * self.M_A + (1 - b1) * A
        self.M_B = b1 * self.M_B + (1 - b1) * B
        self.V = b2 * self.V + (1 - b2) * S**2
        self.v_A = b2 * self.v_A + (1 - b2) * (A**2).sum(0) / counts[0]
        self.v_B = b2 * self.v_B + (1 - b2) * (B**2).sum(1) / counts[1]
        self.v_C = b2 * self.v_C + (1 - b2) * (C**2).sum() / counts[2]

        main = U_L @ self._normalized(self.M, self.V, 1) @ U_R.T
        residual = self._normalized(self.M_A, self.v_A, counts[0]) @ U_R.T
        residual = residual + U_L @ self._normalized(self.M_B, self.v_B[:, None], counts[1])
        C = C / (torch.sqrt(self.v_C / (1 - b2**self.step_count)) + self.eps)
        if self.limiter_scope == "C":
            return main + residual + self._limited(C)
        if self.limiter_scope == "residual":
            return main + self._limited(residual + C)
        total = main + residual + C
        return self._limited(total) if self.limiter_scope == "total" else total

    def _without_noise(self, part: Tensor, G: Tensor, *, complete: bool) -> Tensor:
        """Return a part, or zero where it can only be rounding error."""
        is_noise = complete or part.norm() <= self.noise * G.norm()
        return torch.zeros_like(part) if is_noise else part

    def _normalized(self, M: Tensor, v: Tensor, count: int) -> Tensor:
        """Return N(M, v); its bound is for sums, a mean of count squares is smaller by their number."""
        t, bound = self.step_count, self.bound * math.sqrt(count)
        N = (M / (1 - self.beta1**t)) / (torch.sqrt(v / (1 - self.beta2**t)) + self.eps)
        return N.clamp(-bound, bound)

    def _limited(self, X: Tensor) -> Tensor:
        norm = X.norm().item()
        excess = max(norm / self.limited_norm / self.gamma, 1.0) if self.limited_norm > 0 else 1.0
        self.limited_norm = norm / excess
        return X / excess
