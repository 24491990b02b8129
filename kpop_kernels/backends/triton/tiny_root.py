"""Inverse roots of matrices up to order 8 in float64, from the first step to the last in one program.

The iteration has few roundings there to average over, so that float32 would lose several times more than it does
at larger orders.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import BlockwiseConfig
from .device_table import device_table
from .launch import launch
from .memory import load_operand, store_operand, store_rounded
from .spectrum import LEAST_SUM, damped, spectrum_bound

_CONFIG = BlockwiseConfig(elements=64, num_warps=4)
SIDE = tl.constexpr(8)


def tiny_roots(
    A: Tensor,
    p: int,
    *,
    schedule: Sequence[float],
    second_stage: Sequence[float],
    damping: float,
    relative_damping: float,
) -> tuple[Tensor, Tensor]:
    """Return (A + δI)^(-1/p), (count, n, n), and the bounds of the spectra in float64, (count, 1, 1).

    Args:
        A: Matrices of order up to 8, float32, (count, n, n).
        p: Root.
        schedule: Coefficients (a, b) of the steps, flat.
        second_stage: The same for the second iteration of p = 4.
        damping: Added to the diagonal.
        relative_damping: Added to the diagonal, in units of the bound.
    """
    A = A.contiguous()
    root = torch.empty_like(A)
    bound = torch.empty(len(A), 1, 1, dtype=torch.float64, device=A.device)
    steps = device_table(((*schedule, *second_stage),), torch.float64, A.device)
    counts = (A.shape[-1], len(schedule) // 2, len(second_stage) // 2)
    arguments = (A, root, bound, steps, *counts, damping, relative_damping)
    launch(tiny_root_kernel, (len(A),), arguments, _CONFIG, P=p)
    return root, bound


@triton.jit
def product(A, B):
    """Return A B."""
    return tl.sum(A[:, :, None] * B[None, :, :], axis=1)


@triton.jit
def symmetric_product(A, B):
    """Return the symmetric part of A B."""
    X = product(A, B)
    return 0.5 * (X + tl.trans(X))


@triton.jit
def bound_of(S, is_diagonal, n):
    """Return the bound of a spectrum; S is 0 beyond its order."""
    magnitudes = tl.abs(S)
    sums = tl.maximum(tl.sum(magnitudes, axis=1), LEAST_SUM)
    products = tl.sum(magnitudes * tl.trans(tl.broadcast_to(sums[:, None], (SIDE, SIDE))), axis=1)
    diagonal = tl.sum(tl.sum(tl.where(is_diagonal, S, 0.0), axis=1), axis=0)
    squares = tl.sum(tl.sum(S * S, axis=1), axis=0)
    return spectrum_bound(diagonal, squares, tl.max(tl.fdiv(products, sums), axis=0), n.to(tl.float64))


@triton.jit
def iterate(Y, is_diagonal, steps_ptr, steps):
    """Return Y^(1/2) and Y^(-1/2)."""
    Z = tl.where(is_diagonal, 1.0, Y * 0.0)
    for step in range(steps):
        a = load_operand(steps_ptr + 2 * step)
        b = load_operand(steps_ptr + 2 * step + 1)
        P = product(Z, Y)
        Y = a * Y + b * symmetric_product(Y, P)
        Z = a * Z + b * symmetric_product(P, Z)
    return Y, Z


@triton.jit(do_not_specialize=["n", "steps", "second_steps"])
def tiny_root_kernel(
    a_ptr,
    out_ptr,
    bound_ptr,
    steps_ptr,
    n,
    steps,
    second_steps,
    damping: tl.float64,
    relative_damping: tl.float64,
    P: tl.constexpr,
):
    """Compute the root of one matrix and the bound of its spectrum."""
    matrix = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, SIDE)[:, None]
    j = tl.arange(0, SIDE)[None, :]
    holds = (i < n) & (j < n)
    is_diagonal = i == j
    a_ptr += matrix * n * n
    Y = 0.5 * load_operand(a_ptr + i * n + j, holds).to(tl.float64)
    Y += 0.5 * load_operand(a_ptr + j * n + i, holds).to(tl.float64)
    delta, bound = damped(bound_of(Y, is_diagonal, n), damping, relative_damping)
    store_operand(bound_ptr + matrix, bound)
    inverse = tl.where(bound == 0.0, 1.0, tl.fdiv(1.0, bound))
    Y = Y * inverse + tl.where(is_diagonal, delta * inverse, 0.0)
    _, root = iterate(Y, is_diagonal, steps_ptr, steps)
    if P == 1:
        root = symmetric_product(root, root)
        scale = inverse
    else:
        scale = tl.sqrt(inverse)
    if P == 4:
        # Beyond its order the root is a multiple of the identity, as large as it can be.
        root = tl.where(holds, root, 0.0)
        largest = bound_of(root, is_diagonal, n)
        root, _ = iterate(root * tl.fdiv(1.0, largest), is_diagonal, steps_ptr + 2 * steps, second_steps)
        scale = tl.sqrt(largest * scale)
    root = tl.where(bound > 0.0, scale * root, tl.where(bound == 0.0, 0.0, float("nan")))
    store_rounded(out_ptr + matrix * n * n + i * n + j, root, holds)
