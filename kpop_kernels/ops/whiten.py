"""Whitening by roots of both Kronecker factors, and the factors of what the other side has whitened."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .._schema import scalar
from ._arguments import each


def whiten(
    G: Tensor,  # (..., m, n)
    P_L: Tensor | None,  # (..., m, m)
    P_R: Tensor | None,  # (..., n, n)
    *,
    out: Tensor | None = None,
) -> Tensor:  # (..., m, n)
    """Return P_L G P_R.

    With inverse roots of the second moments of G's rows and columns this is the direction of Shampoo.

    Args:
        G: Matrices; float32, bfloat16, float16 (computed in float32) or float64. Not modified.
        P_L: Left factor, one for the whole batch or one a matrix; it need not be symmetric. None leaves the side
            alone.
        P_R: Right factor, likewise.
        out: Where the result goes: shape, dtype and device of G, no memory in common with the inputs.

    Returns:
        A new tensor of G's shape and dtype, or ``out``.

    Raises:
        ValueError: Shapes or devices do not fit, ``out`` does not fit or shares memory with an input, or a
            tensor requires grad in grad mode.
        TypeError: A tensor is not floating point.

    Numerics:
        float32, m, n ≤ 257, relative to ‖P_L‖‖G‖‖P_R‖ in Frobenius norms against float64: within 5e-7. A NaN or
        Inf in one matrix of a batch poisons that matrix only.

    Source:
        Gupta, Koren & Singer, Shampoo: Preconditioned Stochastic Tensor Optimization (2018). Reference:
        python_ref/whiten.py.
    """
    if out is None:
        return torch.ops.kpop.whiten(G, P_L, P_R)
    torch.ops.kpop.whiten.out(G, P_L, P_R, out=out)
    return out


def whiten_foreach(
    G: Sequence[Tensor],
    P_L: Sequence[Tensor | None],
    P_R: Sequence[Tensor | None],
    *,
    out: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Return P_L G P_R for every matrix of a list as `whiten` does, in one call.

    Args:
        G: Matrices of mixed shapes on one device. Not modified.
        P_L: Left factor of each, or None.
        P_R: Right factor of each, or None.
        out: Where the results go, one tensor for each.

    Returns:
        A list of new tensors, or ``out`` as a list.

    Raises:
        ValueError: As `whiten`, naming the item, or lists differ in length.
        TypeError: As `whiten`, naming the item.
    """
    if not G:
        return []
    lists = (list(G), list(P_L), list(P_R))
    if out is None:
        return list(torch.ops.kpop.whiten_foreach(*lists))
    torch.ops.kpop.whiten_foreach.out(*lists, out=list(out))
    return list(out)


def whiten_update_(
    param: Tensor,  # (..., m, n)
    G: Tensor,  # (..., m, n)
    P_L: Tensor | None,  # (..., m, m)
    P_R: Tensor | None,  # (..., n, n)
    *,
    lr: float | Tensor,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    maximize: bool = False,
    found_inf: Tensor | None = None,
) -> Tensor:  # param
    """Descend along the whitened direction, in place, and return the parameter.

        W ← (1 - lr·weight_decay)·W - lr·scale·P_L G P_R

    Args:
        param: Parameter W; float32, bfloat16, float16 (computed in float32) or float64. Overwritten, rounded
            once.
        G: What is whitened, a gradient or a momentum; any floating dtype and strides. Not modified.
        P_L: Left factor, one for the whole batch or one a matrix. None leaves the side alone.
        P_R: Right factor, likewise.
        lr: Learning rate; a 0-d tensor on the parameter's device is read there, without a synchronization.
        weight_decay: Decoupled decay.
        scale: Factor of the direction alone.
        maximize: Ascend instead.
        found_inf: 0-d tensor; when it is not zero, nothing is changed (decided on the device).

    Raises:
        ValueError: Shapes or devices do not fit, weight_decay is negative, param shares memory with an input, or
            a tensor requires grad in grad mode.
        TypeError: A tensor is not floating point.

    Numerics:
        As `whiten`; a direction of zero leaves a parameter without decay unchanged, bit for bit.

    Source:
        Zhang et al., Online KL Shampoo (2026). Reference: python_ref/whiten.py.
    """
    torch.ops.kpop.whiten_update_(
        param,
        G,
        P_L,
        P_R,
        lr=scalar(lr),
        weight_decay=weight_decay,
        scale=scale,
        maximize=maximize,
        found_inf=found_inf,
    )
    return param


def whiten_update_foreach_(
    params: Sequence[Tensor],
    G: Sequence[Tensor],
    P_L: Sequence[Tensor | None],
    P_R: Sequence[Tensor | None],
    *,
    lr: float | Tensor,
    weight_decay: float = 0.0,
    scale: float | Sequence[float] = 1.0,
    maximize: bool = False,
    found_inf: Tensor | Sequence[Tensor | None] | None = None,
) -> None:
    """Descend along the whitened direction for every parameter of a list as `whiten_update_` does, in one call.

    Args:
        params: Parameters of mixed shapes on one device. Overwritten.
        G: What is whitened, for each.
        P_L: Left factor of each, or None.
        P_R: Right factor of each, or None.
        lr: As in `whiten_update_`.
        weight_decay: As in `whiten_update_`.
        scale: One factor for each parameter, or one for all.
        maximize: As in `whiten_update_`.
        found_inf: One tensor or None for each parameter, or one for all.

    Raises:
        ValueError: As `whiten_update_`, naming the item, or lists differ in length.
        TypeError: As `whiten_update_`, naming the item.
    """
    if not params:
        return
    torch.ops.kpop.whiten_update_foreach_(
        list(params),
        list(G),
        list(P_L),
        list(P_R),
        lr=scalar(lr),
        weight_decay=weight_decay,
        scale=each(scale, len(params)),
        maximize=maximize,
        found_inf=each(found_inf, len(params)),
    )


def kl_gram_ema_(
    S_a: Tensor,  # (..., m, m)
    S_b: Tensor,  # (..., n, n)
    G: Tensor,  # (..., m, n)
    P_a: Tensor | None,  # (..., m, m)
    P_b: Tensor | None,  # (..., n, n)
    *,
    beta: float,
    eps: float = 0.0,
) -> tuple[Tensor, Tensor]:  # S_a, S_b
    """Update both Kronecker factors of KL-Shampoo in place and return them.

        S_a ← β·S_a + (1-β)/n·(G P_b)(G P_b)ᵀ + eps·I
        S_b ← β·S_b + (1-β)/m·(P_a G)ᵀ(P_a G) + eps·I

    with P_a, P_b the inverse square roots of the factors so far. The results are symmetric bit for bit: only the
    lower triangles of the factors are read, the upper ones are their mirrors.

    Args:
        S_a: Left factor; float32, bfloat16, float16 (computed in float32) or float64. Overwritten.
        S_b: Right factor, of S_a's dtype. Overwritten.
        G: Gradient, any floating dtype and strides. Not modified.
        P_a: Inverse square root of the left factor; None is the identity.
        P_b: Inverse square root of the right factor, likewise.
        beta: Decay β, 0 ≤ β < 1.
        eps: Added to the diagonals.

    Raises:
        ValueError: Shapes or devices do not fit, beta or eps is out of range, a factor shares memory with another
            tensor, or a tensor requires grad in grad mode.
        TypeError: A tensor is not floating point, or the factors' dtypes differ.

    Numerics:
        float32, m, n ≤ 257: relative Frobenius error below 5e-7 against float64. A NaN or Inf in G poisons the
        factors of that batch item only.

    Source:
        Lin et al., Understanding and Improving Shampoo and SOAP via Kullback–Leibler Minimization (2025).
        Reference: python_ref/whiten.py.
    """
    torch.ops.kpop.kl_gram_ema_(S_a, S_b, G, P_a, P_b, beta=beta, eps=eps)
    return S_a, S_b


def kl_gram_ema_foreach_(
    S_a: Sequence[Tensor],
    S_b: Sequence[Tensor],
    G: Sequence[Tensor],
    P_a: Sequence[Tensor | None],
    P_b: Sequence[Tensor | None],
    *,
    beta: float,
    eps: float = 0.0,
) -> None:
    """Update both factors of every gradient of a list in place as `kl_gram_ema_` does, in one call.

    Args:
        S_a: Left factors on one device. Overwritten.
        S_b: Right factor of each gradient. Overwritten.
        G: Gradients of mixed shapes.
        P_a: Inverse square root of each left factor, or None.
        P_b: Inverse square root of each right factor, or None.
        beta: As in `kl_gram_ema_`.
        eps: As in `kl_gram_ema_`.

    Raises:
        ValueError: As `kl_gram_ema_`, naming the item, or lists differ in length.
        TypeError: As `kl_gram_ema_`, naming the item.
    """
    if G:
        torch.ops.kpop.kl_gram_ema_foreach_(
            list(S_a), list(S_b), list(G), list(P_a), list(P_b), beta=beta, eps=eps
        )
