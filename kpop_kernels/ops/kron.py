"""Kronecker (two-sided) rotations, and Adam in the rotated basis."""

import torch
from torch import Tensor

from .._schema import scalar


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


def kron_adam_(
    param: Tensor,  # (..., m, n)
    grad: Tensor,  # (..., m, n)
    exp_avg: Tensor,  # (..., m, n)
    exp_avg_sq: Tensor,  # (..., m, n)
    Q_L: Tensor | None,  # (..., m, m)
    Q_R: Tensor | None,  # (..., n, n)
    *,
    lr: float | Tensor,
    beta1: float = 0.9,
    beta2: float = 0.95,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    step: int | Tensor,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> Tensor:  # param
    """Take one Adam step in a rotated basis, in place, and return the parameter.

        G' = Q_Lᵀ G Q_R                      (G = -grad with maximize)
        m ← β₁m + (1-β₁)G'                   v ← β₂v + (1-β₂)G'∘G'
        N = (m / (1-β₁ᵗ)) / (√(v / (1-β₂ᵗ)) + eps)
        W ← (1 - lr·weight_decay)·W - lr·Q_L N Q_Rᵀ

    Args:
        param: Parameter W; float32, bfloat16, float16 or float64. Overwritten.
        grad: Gradient, any floating dtype and strides. Not modified.
        exp_avg: First moment in the rotated basis, float32 (float64 for a float64 param). Overwritten.
        exp_avg_sq: Second moment in the rotated basis, likewise.
        Q_L: Left basis in the moments' dtype, one for the batch or one a matrix; None leaves the side alone.
        Q_R: Right basis, likewise.
        lr: Learning rate; a 0-d tensor on the parameter's device is read there, without a synchronization.
        beta1: Decay of the first moment, 0 ≤ β₁ < 1.
        beta2: Decay of the second moment, 0 ≤ β₂ < 1.
        eps: Added to the denominator; with 0, coordinates that never saw a gradient become NaN.
        weight_decay: Decoupled decay.
        step: Number t of this step, counted from 1; a number or a 0-d tensor (not checked off the CPU).
        maximize: Ascend instead.
        found_inf: 0-d tensor; when it is not zero, nothing is changed (decided on the device).

    Raises:
        ValueError: Shapes or devices do not fit, a hyper-parameter is out of range, written tensors share
            memory, or a tensor requires grad in grad mode.
        TypeError: A tensor is not floating point, or moments and bases are not in the compute dtype.

    Numerics:
        With Q_L = Q_R = None it is torch.optim.AdamW (float64: within 1e-12 after 50 steps). A NaN or Inf in
        one matrix of a batch poisons that matrix only. float32, m, n ≤ 257, relative Frobenius errors
        against float64: within 2e-7 for all three from moments of order one; from zero moments, where
        nothing covers the error of the rotation, within 5e-7 for exp_avg and 1e-6 for exp_avg_sq.

    Source:
        The KPOP article; Vyas et al., SOAP (2024). Reference: python_ref/kron.py.
    """
    torch.ops.kpop.kron_adam_(
        param,
        grad,
        exp_avg,
        exp_avg_sq,
        Q_L,
        Q_R,
        lr=scalar(lr),
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        weight_decay=weight_decay,
        step=scalar(step),
        maximize=maximize,
        found_inf=found_inf,
    )
    return param


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
