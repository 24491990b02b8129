"""Eigenbases of symmetric matrices, renewed from the ones before."""

import torch
from torch import Tensor


def refresh(S: Tensor, Q: Tensor, *, qr: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return the new basis of one matrix, falling Rayleigh quotients of its columns, and Q_newᵀ Q, in float64.

    By eigh the columns are eigenvectors. By QR they are those of one step of orthogonal iteration from Q, whose
    columns are ordered by falling qᵀSq before, so that Gram–Schmidt serves large eigenvalues first. Signs agree
    with the old column at the same place.
    """
    S, Q = S.to(torch.float64), Q.to(torch.float64)
    new = torch.linalg.qr(S @ _falling(S, Q)).Q if qr else torch.linalg.eigh(S).eigenvectors
    new = _falling(S, new)
    new = torch.where((new * Q).sum(0) < 0, -new, new)
    return new, torch.diag(new.T @ S @ new), new.T @ Q


def _falling(S: Tensor, Q: Tensor) -> Tensor:
    """Return the columns q of a basis ordered by falling qᵀSq."""
    return Q[:, torch.diag(Q.T @ S @ Q).argsort(descending=True, stable=True)]
