"""Adam's moments carried into a refreshed basis on Apple GPUs: a rotation of each."""

import torch
from torch import Tensor

from .kron_rotate import kron_rotate


def rebase_moments_(exp_avg: Tensor, exp_avg_sq: Tensor, P_L: Tensor | None, P_R: Tensor | None) -> None:
    """Move the moments into a refreshed basis: P_L m P_Rᵀ and (P_L∘P_L) v (P_R∘P_R)ᵀ."""
    if P_L is None and P_R is None:
        return
    _rotate_(exp_avg, P_L, P_R)
    _rotate_(exp_avg_sq, *(None if P is None else P.to(torch.float32).square() for P in (P_L, P_R)))


def _rotate_(moment: Tensor, P_L: Tensor | None, P_R: Tensor | None) -> None:
    # Of two products the last one reads what the first has written, a single one reads the moment.
    source = moment if P_L is not None and P_R is not None else moment.clone()
    kron_rotate(source, P_L, P_R, inverse=True, out=moment)
