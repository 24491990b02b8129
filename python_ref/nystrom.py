"""Leading eigenpairs of a symmetric positive semidefinite matrix from a sketch of it."""

import math

import torch
from torch import Tensor


def nystrom(
    A: Tensor, Psi: Tensor, U: Tensor | None, rank: int, power_iterations: int
) -> tuple[Tensor, Tensor]:
    """Return the leading eigenpairs of a symmetric positive semidefinite matrix.

    A_nys = Y (ΩᵀY)⁻¹ Yᵀ with Y = AΩ is the Nyström approximation on the sketch Ω; its eigenpairs come from the
    singular vectors of Y C⁻¹ with CᵀC = ΩᵀY. A shift of A by ν, taken off again, makes C exist.
    """
    start = Omega = torch.linalg.qr(Psi if U is None else torch.cat([U, Psi], dim=1)).Q
    for _ in range(power_iterations):
        Omega = torch.linalg.qr(A @ Omega).Q
    Y = A @ Omega
    nu = 2.0 ** (math.floor(math.log2(torch.linalg.matrix_norm(Y, 2).item())) - 52)
    Y = Y + nu * Omega
    B = Omega.T @ Y
    C = torch.linalg.cholesky((B + B.T) / 2).T
    vectors, sigma, _ = torch.linalg.svd(torch.linalg.solve(C.T, Y.T).T, full_matrices=False)
    vectors, eigvals = vectors[:, :rank], (sigma**2 - nu).clamp_min(0)[:rank]
    agreement = (vectors * (start[:, :rank] if U is None else U)).sum(0)
    return torch.where(agreement < 0, -vectors, vectors), eigvals
