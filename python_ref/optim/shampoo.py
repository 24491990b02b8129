"""Shampoo on one tensor W with k sides, usually a matrix.

A step t = 1, 2, ... with gradient G is, for each side i with G_i the unfolding of G whose rows are side i,

    S_i ← β₂S_i + (1-β₂) G_i G_iᵀ   or   S_i ← S_i + G_i G_iᵀ
    at a refresh: P_i = (Ŝ_i + damping·‖Ŝ_i‖_∞ I)^(-1/(2k)), Ŝ_i = S_i/(1-β₂ᵗ) or S_i
    M ← β₁M + (1-β₁)G,  M̂ = M/(1-β₁ᵗ)
    U = M̂ multiplied by P_i on every side
    W ← (1 - lr·weight_decay) W - lr·g·U,  g = 1, ‖M̂‖/‖U‖ or ‖Adam's update‖/‖U‖

Refreshes are steps 1, f, 2f, .... A diagonal side has the diagonal of S_i only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from python_ref.inverse_root import inverse_root


@dataclass
class Shampoo:
    """The state of one tensor and its hyper-parameters."""

    W: Tensor
    lr: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    accumulate: bool = False
    damping: float = 1e-4
    graft: str = "adam"
    frequency: int = 10
    diagonal: Sequence[int] = ()
    step_count: int = 0
    factors: list[Tensor] = field(init=False)
    roots: list[Tensor] = field(init=False)
    M: Tensor = field(init=False)
    v: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Start from zero factors and moments."""
        self.W = self.W.detach().to(torch.float64, copy=True)
        self.factors = [torch.zeros(d, d, dtype=torch.float64) for d in self.W.shape]
        self.roots = [torch.eye(d, dtype=torch.float64) for d in self.W.shape]
        self.M, self.v = torch.zeros_like(self.W), torch.zeros_like(self.W)

    def step(self, G: Tensor) -> Tensor:
        """Take one step and return W."""
        G = G.detach().to(torch.float64)
        self.step_count += 1
        self._update_factors(G)
        if self.step_count == 1 or self.step_count % self.frequency == 0:
            self.roots = [self._root(S) for S in self.factors]
        self.M = self.beta1 * self.M + (1 - self.beta1) * G
        self.v = self.beta2 * self.v + (1 - self.beta2) * G**2
        M = self.M / (1 - self.beta1**self.step_count)
        U = M
        for side, P in enumerate(self.roots):
            U = torch.tensordot(P, U, dims=([1], [side])).movedim(0, side)
        U = U * self._graft_ratio(M, U)
        self.W = (1 - self.lr * self.weight_decay) * self.W - self.lr * U
        return self.W

    def _update_factors(self, G: Tensor) -> None:
        for side, S in enumerate(self.factors):
            rows = G.movedim(side, 0).flatten(1)
            gram = rows @ rows.T
            if side in self.diagonal:
                gram = torch.diag(torch.diag(gram))
            self.factors[side] = S + gram if self.accumulate else self.beta2 * S + (1 - self.beta2) * gram

    def _root(self, S: Tensor) -> Tensor:
        if not self.accumulate:
            S = S / (1 - self.beta2**self.step_count)
        return inverse_root(S, 2 * self.W.ndim, damping=self.damping * S.abs().sum(1).max().item())

    def _graft_ratio(self, M: Tensor, U: Tensor) -> float:
        if self.graft == "none":
            return 1.0
        adam = M / ((self.v / (1 - self.beta2**self.step_count)).sqrt() + self.eps)
        return ((M if self.graft == "sgd" else adam).norm() / U.norm()).item()
