"""SOAP on one matrix W (m, n).

A step t = 1, 2, ... with gradient G is

    L ← βL + (1-β) GGᵀ        R ← βR + (1-β) GᵀG
    at a refresh: Q_L, Q_R ← eigenvectors of L, R, largest eigenvalue first; moments carried over
    G' = Q_Lᵀ G Q_R, Adam on G' with bias correction, update rotated back

Refreshes are steps 1, f, 2f, ..., or 2, f, 2f, ... when the first step is taken in the identity basis. By QR, a
refresh after the first is Q ← the orthonormal factor of S Q, with the columns of Q ordered by qᵀSq before.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from python_ref.kron import adam, rebase_moments, rotate


@dataclass
class SOAP:
    """The state of one matrix and its hyper-parameters."""

    W: Tensor
    lr: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    shampoo_beta: float = 0.95
    frequency: int = 10
    qr: bool = False
    transport_both: bool = False
    first_refresh: int = 1
    step_count: int = 0
    L: Tensor = field(init=False)
    R: Tensor = field(init=False)
    Q_L: Tensor = field(init=False)
    Q_R: Tensor = field(init=False)
    m: Tensor = field(init=False)
    v: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Start from zero factors and moments, and the identity basis."""
        self.W = self.W.detach().to(torch.float64, copy=True)
        self.Q_L, self.Q_R = (torch.eye(size, dtype=torch.float64) for size in self.W.shape)
        self.L, self.R = torch.zeros_like(self.Q_L), torch.zeros_like(self.Q_R)
        self.m, self.v = torch.zeros_like(self.W), torch.zeros_like(self.W)

    def step(self, G: Tensor) -> Tensor:
        """Take one step and return W."""
        G = G.detach().to(torch.float64)
        self.step_count += 1
        beta = self.shampoo_beta
        self.L = beta * self.L + (1 - beta) * G @ G.T
        self.R = beta * self.R + (1 - beta) * G.T @ G
        first, t = self.first_refresh, self.step_count
        if t == first or (t > first and t % self.frequency == 0):
            self._refresh()
        self.W, self.m, self.v = adam(
            self.W,
            G,
            self.m,
            self.v,
            self.Q_L,
            self.Q_R,
            lr=self.lr,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            weight_decay=self.weight_decay,
            step=self.step_count,
        )
        return self.W

    def _refresh(self) -> None:
        old_L, old_R = self.Q_L, self.Q_R
        if self.qr and self.step_count > self.first_refresh:
            rows, columns = (_falling(S, Q) for S, Q in ((self.L, old_L), (self.R, old_R)))
            self.Q_L = torch.linalg.qr(self.L @ old_L[:, rows]).Q
            self.Q_R = torch.linalg.qr(self.R @ old_R[:, columns]).Q
            reordered = self.v[rows][:, columns]
        else:
            self.Q_L, self.Q_R = (torch.linalg.eigh(S).eigenvectors.flip(1) for S in (self.L, self.R))
            reordered = self.v
        P_L, P_R = self.Q_L.T @ old_L, self.Q_R.T @ old_R
        if self.transport_both:
            self.m, self.v = rebase_moments(self.m, self.v, P_L, P_R)
        else:
            self.m, self.v = rotate(self.m, P_L, P_R, inverse=True), reordered


def _falling(S: Tensor, Q: Tensor) -> Tensor:
    """Return the order of the columns q of a basis by falling qᵀSq."""
    return torch.diag(Q.T @ S @ Q).argsort(descending=True, stable=True)
