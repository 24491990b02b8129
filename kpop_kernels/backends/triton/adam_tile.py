"""Adam on elements that a program holds: both moments are read once and written once."""

import triton
import triton.language as tl

from .memory import load_as_float32, store_rounded


@triton.jit
def adam_tile(
    g,
    exp_avg_ptr,
    exp_avg_sq_ptr,
    offsets,
    inside,
    correction1,
    correction2,
    beta1,
    one_minus_beta1,
    beta2,
    one_minus_beta2,
    eps,
    limit,
    AVERAGE: tl.constexpr,
    MAXIMIZE: tl.constexpr,
    CLIP: tl.constexpr,
):
    """Average moments with g and return m̂ / (√v̂ + eps), limited to ±limit.

    AVERAGE is "both", "second" where the first moment is kept in another basis, and then "none", where g is the
    first moment.
    """
    if MAXIMIZE and AVERAGE != "none":
        g = -g
    m = g
    if AVERAGE == "both":
        m = beta1 * load_as_float32(exp_avg_ptr + offsets, inside) + one_minus_beta1 * g
        store_rounded(exp_avg_ptr + offsets, m, inside)
    v = load_as_float32(exp_avg_sq_ptr + offsets, inside)
    if AVERAGE != "none":
        v = beta2 * v + (one_minus_beta2 * g) * g
        store_rounded(exp_avg_sq_ptr + offsets, v, inside)
    return normalized(m * correction1, v * correction2, eps, limit, CLIP)


@triton.jit
def move(param_ptr, update, inside, decay, rate):
    """Update elements of a parameter, W = decay·W - rate·update: read once and written once."""
    W = load_as_float32(param_ptr, inside) * decay
    store_rounded(param_ptr, W - rate * update, inside)


@triton.jit
def normalized(m, v, eps, limit, CLIP: tl.constexpr):
    """Return m / (√v + eps), limited to ±limit."""
    N = tl.div_rn(m, tl.sqrt_rn(v) + eps)
    if CLIP:
        # Comparisons keep NaN, which the minimum of two numbers drops.
        N = tl.where(N > limit, limit, N)
        N = tl.where(N < -limit, -limit, N)
    return N
