"""Online KL Shampoo on one matrix W (m, n), with exact inverse roots.

Before the first step, with φ = ‖G‖² of its gradient:

    L = √(m/(nφ + eps))·GGᵀ;  L ← L + (‖L‖/√m + eps) I        R = √(n/(mφ + eps))·GᵀG;  R ← R + (‖R‖/√n + eps) I
    P_L = L^(-1/2)            P_R = R^(-1/2)

Each step:

    M ← β₁M + (1-β₁)G         N = β₁M + (1-β₁)G
    L ← β₂L + (1-β₂)/n·(G P_R)(G P_R)ᵀ + eps·I        R ← β₂R + (1-β₂)/m·(P_L G)ᵀ(P_L G) + eps·I
    P_L = L^(-1/2)            P_R = R^(-1/2)
    W ← (1 - weight_decay·lr·(lr/lr_peak)) W - lr·c_mom·c_shape·P_L N P_R

c_mom is 1/√Var(N) for independent unit gradients; c_shape = √(m/n)/(√m + √n).
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from python_ref.inverse_root import inverse_root


@dataclass
class OnlineKLShampoo:
    """The state of one matrix and its hyper-parameters."""

    W: Tensor
    lr: float
    beta1: float = 0.9684
    beta2: float = 0.9482
    eps: float = 1e-9
    weight_decay: float = 0.0303
    lr_peak: float | None = None
    started: bool = False
    M: Tensor = field(init=False)
    L: Tensor = field(init=False)
    R: Tensor = field(init=False)
    P_L: Tensor = field(init=False)
    P_R: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Start from zero momentum."""
        self.W = self.W.detach().to(torch.float64, copy=True)
        self.M = torch.zeros_like(self.W)
        self.lr_peak = self.lr if self.lr_peak is None else self.lr_peak

    def step(self, G: Tensor) -> Tensor:
        """Take one step and return W."""
        G = G.detach().to(torch.float64)
        if not self.started:
            self._start(G)
        self.M = self.beta1 * self.M + (1 - self.beta1) * G
        N = self.beta1 * self.M + (1 - self.beta1) * G
        self._update_factors(G)
        U = self.P_L @ N @ self.P_R
        decay = self.weight_decay * self.lr * (self.lr / self.lr_peak)
        self.W = (1 - decay) * self.W - self.lr * self._c_mom() * self._c_shape() * U
        return self.W

    def _start(self, G: Tensor) -> None:
        m, n = G.shape
        phi = G.square().sum()
        L = torch.sqrt(m / (n * phi + self.eps)) * G @ G.T
        R = torch.sqrt(n / (m * phi + self.eps)) * G.T @ G
        self.L = L + (L.norm() / math.sqrt(m) + self.eps) * torch.eye(m, dtype=torch.float64)
        self.R = R + (R.norm() / math.sqrt(n) + self.eps) * torch.eye(n, dtype=torch.float64)
        self.P_L, self.P_R = inverse_root(self.L, 2), inverse_root(self.R, 2)
        self.started = True

    def _update_factors(self, G: Tensor) -> None:
        m, n = G.shape
        right, left = G @ self.P_R, self.P_L @ G
        self.L = self.beta2 * self.L + (1 - self.beta2) / n * right @ right.T
        self.R = self.beta2 * self.R + (1 - self.beta2) / m * left.T @ left
        self.L = self.L + self.eps * torch.eye(m, dtype=torch.float64)
        self.R = self.R + self.eps * torch.eye(n, dtype=torch.float64)
        self.P_L, self.P_R = inverse_root(self.L, 2), inverse_root(self.R, 2)

    def _c_mom(self) -> float:
        """1/√Σw² over the weights w of past gradients in N: (1-β)(1+β), then (1-β)β², (1-β)β³, ..."""
        beta = self.beta1
        squares = (1 + beta) ** 2 + beta**4 / (1 - beta**2)
        return 1 / ((1 - beta) * math.sqrt(squares))

    def _c_shape(self) -> float:
        m, n = self.W.shape
        return math.sqrt(m / n) / (math.sqrt(m) + math.sqrt(n))
