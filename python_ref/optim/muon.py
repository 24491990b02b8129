"""Muon on one matrix W (m, n).

A step with gradient G is

    B ← μB + (1-μ)G        N = μB + (1-μ)G with Nesterov momentum, else B
    O = U f(σ/‖N‖_F) Vᵀ of N = U diag(σ) Vᵀ, f the composition of the Newton–Schulz polynomials
    W ← (1 - lr·weight_decay) W - lr·c·O

with c = √max(1, m/n), 0.2·√max(m, n) or √(m/n).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from python_ref.newton_schulz import map_singular_values


@dataclass
class Muon:
    """The state of one matrix and its hyper-parameters."""

    W: Tensor
    lr: float
    polynomials: Sequence[tuple[float, float, float]]
    momentum: float = 0.95
    nesterov: bool = True
    weight_decay: float = 0.1
    adjustment: str = "original"
    B: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Start from zero momentum."""
        self.W = self.W.detach().to(torch.float64, copy=True)
        self.B = torch.zeros_like(self.W)

    def step(self, G: Tensor) -> Tensor:
        """Take one step and return W."""
        G, mu = G.detach().to(torch.float64), self.momentum
        self.B = mu * self.B + (1 - mu) * G
        N = mu * self.B + (1 - mu) * G if self.nesterov else self.B
        O = map_singular_values(N, self.polynomials)
        self.W = (1 - self.lr * self.weight_decay) * self.W - self.lr * self._scale() * O
        return self.W

    def _scale(self) -> float:
        m, n = self.W.shape
        if self.adjustment == "original":
            return math.sqrt(max(1.0, m / n))
        return 0.2 * math.sqrt(max(m, n)) if self.adjustment == "match_rms_adamw" else math.sqrt(m / n)
