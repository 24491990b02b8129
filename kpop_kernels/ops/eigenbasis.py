"""Eigenbases of Kronecker factors, renewed from the ones before."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

RefreshMethod = Literal["auto", "qr", "eigh"]


class Eigenbasis(NamedTuple):
    """An orthonormal basis that makes a factor (nearly) diagonal, and what became of the old one.

    Attributes:
        Q: (..., n, n), eigenvectors in columns.
        eigvals: (..., n), qᵀSq of each column; NaN where the basis could not be renewed.
        P: (..., n, n), the change Q_newᵀ Q_old, as `rebase_moments_` takes it.
        failed: (...), bool: the old basis was kept, for S is not finite or could not be decomposed.
    """

    Q: Tensor
    eigvals: Tensor
    P: Tensor
    failed: Tensor


def refresh_eigenbasis(
    S: Tensor,  # (..., n, n)
    Q: Tensor | None,  # (..., n, n)
    *,
    method: RefreshMethod = "auto",
    sort: bool = True,
) -> Eigenbasis:
    """Return the eigenbasis of symmetric matrices, agreeing with the basis so far where it can.

        eigh:  S = Q' Λ Q'ᵀ
        qr:    S Q = Q' R,  Λ = diag(Q'ᵀ S Q') = diag(R Pᵀ)    (one step of orthogonal iteration)

    Columns are ordered by falling eigenvalue, each column's sign is chosen so that qᵀq_old ≥ 0 at its place, and
    P = Q'ᵀ Q carries what lives in the old basis into the new one. A matrix that is not finite, or cannot be
    decomposed in float32, then float64, then float64 on the CPU, keeps its basis (P = I) and is flagged. A zero
    matrix keeps its basis too, but that is no failure.

    Args:
        S: Symmetric positive semidefinite; float32, bfloat16, float16 (computed in float32) or float64. Not
            modified.
        Q: Orthonormal basis so far, in the compute dtype of S. None is the identity, whose signs nothing is made
            to agree with.
        method: "eigh", "qr", or "auto": a step of QR for matrices that Q already makes nearly diagonal (a tenth
            of the norm of QᵀSQ off its diagonal at most), eigh for the others.
        sort: Order the columns by falling eigenvalue. Otherwise eigh leaves them rising, and QR at their places.

    Returns:
        New basis, eigenvalues, change of basis, and flags. Waits for the device.

    Raises:
        ValueError: S is not square, Q does not fit, method is unknown or "qr" without Q, or a tensor requires grad
            in grad mode.
        TypeError: A tensor is not floating point, or Q is not in the compute dtype.

    Numerics:
        Each matrix is scaled by a power of two, so norms from 1e-30 to 1e30 make no difference. Products are in
        full float32 (never tf32), or small eigenvalues would drown. In float32, n ≤ 257: ‖QᵀQ - I‖ below 3e-5,
        eigenvalues within 2e-6 of the largest, and by eigh QᵀSQ within 2e-6 of its norm diagonal.

    Source:
        Vyas et al., SOAP (2024), for QR; moments in the new basis: the Clean paper, eq. 15. Reference:
        python_ref/eigenbasis.py.
    """
    return Eigenbasis(*torch.ops.kpop.refresh_eigenbasis(S, Q, method=method, sort=sort))
