"""KPOP on one weight matrix W (m, n) of a layer y = W x.

With inputs X (rows, n), output gradients dY (rows, m) and G = dYᵀX, a step t = 1, 2, ... is

    R ← αR + (1-α) XᵀX / z_R        L ← αL + (1-α) dYᵀdY / z_L
    at a refresh: Q_L, Q_R ← eigenvectors of L, R; moments carried over
    G' = Q_Lᵀ G Q_R, Adam on G' with bias correction, update rotated back

where z is the trace of the new moment (default), or the number of rows (the article, mode "seed"). By QR, a
refresh after the first is one step of orthogonal iteration from the old basis.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from python_ref.eigenbasis import refresh
from python_ref.kron import adam, rebase_moments


@dataclass
class KPOP:
    """The state of one matrix and its hyper-parameters."""

    W: Tensor
    lr: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    alpha: float = 0.95
    frequency: int = 10
    qr: bool = False
    seed: bool = False
    step_count: int = 0
    L: Tensor = field(init=False)
    R: Tensor = field(init=False)
    Q_L: Tensor = field(init=False)
    Q_R: Tensor = field(init=False)
    m: Tensor = field(init=False)
    v: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Start from zero factors, or from the identity in the article."""
        self.W = self.W.detach().to(torch.float64, copy=True)
        identities = [torch.eye(size, dtype=torch.float64) for size in self.W.shape]
        self.Q_L, self.Q_R = identities
        self.L, self.R = (eye.clone() if self.seed else torch.zeros_like(eye) for eye in identities)
        self.m, self.v = torch.zeros_like(self.W), torch.zeros_like(self.W)

    def step(self, G: Tensor, X: Tensor, dY: Tensor) -> Tensor:
        """Take one step and return W. Without a layer, X = G and dY = Gᵀ give the factors of the gradient."""
        G, X, dY = (t.detach().to(torch.float64) for t in (G, X, dY))
        self.step_count += 1
        self.L = self._average(self.L, dY)
        self.R = self._average(self.R, X)
        if self._refreshes():
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

    def _average(self, S: Tensor, rows: Tensor) -> Tensor:
        moment = rows.T @ rows
        divisor = len(rows) if self.seed else torch.trace(moment)
        return self.alpha * S + (1 - self.alpha) * moment / divisor

    def _refreshes(self) -> bool:
        if self.seed:
            return self.step_count <= 10 or self.step_count % 100 == 0
        return self.step_count == 1 or self.step_count % self.frequency == 0

    def _refresh(self) -> None:
        old_L, old_R = self.Q_L, self.Q_R
        if self.seed:
            self.Q_L, self.Q_R = (torch.linalg.eigh(S).eigenvectors for S in (self.L, self.R))
            return
        qr = self.qr and self.step_count > 1
        self.Q_L, _, P_L = refresh(self.L, old_L, qr=qr)
        self.Q_R, _, P_R = refresh(self.R, old_R, qr=qr)
        self.m, self.v = rebase_moments(self.m, self.v, P_L, P_R)
