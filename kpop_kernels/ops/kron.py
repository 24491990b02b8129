"""Kronecker (two-sided) rotations, and moments carried from one basis to another."""

from collections.abc import Sequence

import torch
from torch import Tensor


def kron_rotate(
    G: Tensor,  # (..., m, n)
    Q_L: Tensor | None,  # (..., m, m)
    Q_R: Tensor | None,  # (..., n, n)
    *,
    inverse: bool = False,
    out: Tensor | None = None,
) -> Tensor:  # (..., m, n)
    """Rotate a matrix on both sides.

        Q_Lᵀ G Q_R   (into the basis)
        Q_L G Q_Rᵀ   (inverse: back)

    Args:
        G: Matrices; float32, bfloat16, float16 (computed in float32) or float64. Not modified.
        Q_L: Left factor, one for the whole batch or one a matrix. None leaves the side alone.
        Q_R: Right factor, likewise.
        inverse: Rotate back.
        out: Where the result goes: shape, dtype and device of G, no memory in common with the inputs.

    Returns:
        A new tensor of G's shape and dtype, or ``out``.

    Raises:
        ValueError: Shapes or devices do not fit, ``out`` does not fit or shares memory with an input, or a
            tensor requires grad in grad mode.
        TypeError: A tensor is not floating point.

    Numerics:
        float32, orthogonal factors, m, n ≤ 257, relative Frobenius errors against float64: the result is
        within 5e-7, there and back within 8e-7, the norm is kept within 1e-7.

    Source:
        George et al., Fast Approximate Natural Gradient Descent in a Kronecker-factored Eigenbasis (2018).
        Reference: python_ref/kron.py.
    """
    if out is None:
        return torch.ops.kpop.kron_rotate(G, Q_L, Q_R, inverse=inverse)
    torch.ops.kpop.kron_rotate.out(G, Q_L, Q_R, inverse=inverse, out=out)
    return out


def rebase_moments_(
    exp_avg: Tensor,  # (..., m, n)
    exp_avg_sq: Tensor,  # (..., m, n)
    P_L: Tensor | None,  # (..., m, m)
    P_R: Tensor | None,  # (..., n, n)
) -> tuple[Tensor, Tensor]:  # exp_avg, exp_avg_sq
    """Carry Adam's moments into a refreshed basis, in place, and return them.

    With P = Q_newᵀ Q_old on each side:

        exp_avg    ← P_L exp_avg P_Rᵀ
        exp_avg_sq ← (P_L∘P_L) exp_avg_sq (P_R∘P_R)ᵀ

    The first is exact. The second is exact for permutations and sign flips, and otherwise what independent
    coordinates would give: non-negative entries stay non-negative and orthogonal P keep their sum.

    Args:
        exp_avg: First moment. Overwritten.
        exp_avg_sq: Second moment. Overwritten.
        P_L: Change of the left basis, one for the batch or one a matrix; None leaves the side alone.
        P_R: Change of the right basis, likewise.

    Raises:
        ValueError: Shapes or devices do not fit, or the moments share memory or require grad in grad mode.
        TypeError: A tensor is not floating point.

    Numerics:
        float32, orthogonal P, m, n ≤ 257: relative Frobenius error below 5e-7 against float64. A NaN or Inf
        in one matrix of a batch poisons that matrix only.

    Source:
        The Clean paper, eq. 15. Reference: python_ref/kron.py.
    """
    torch.ops.kpop.rebase_moments_(exp_avg, exp_avg_sq, P_L, P_R)
    return exp_avg, exp_avg_sq


def rebase_moments_foreach_(
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    P_Ls: Sequence[Tensor | None],
    P_Rs: Sequence[Tensor | None],
) -> None:
    """Carry the moments of every matrix of a list into refreshed bases as `rebase_moments_` does, in one call.

    Args:
        exp_avgs: First moments on one device. Overwritten.
        exp_avg_sqs: Second moment of each. Overwritten.
        P_Ls: Change of the left basis of each, or None.
        P_Rs: Change of the right basis of each, or None.

    Raises:
        ValueError: As `rebase_moments_`, naming the item, or lists differ in length.
        TypeError: As `rebase_moments_`, naming the item.
    """
    if exp_avgs:
        torch.ops.kpop.rebase_moments_foreach_(list(exp_avgs), list(exp_avg_sqs), list(P_Ls), list(P_Rs))
