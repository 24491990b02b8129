"""Products known to be symmetric: the tiles below the diagonal, each stored twice; of C nothing else is read."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...tuning import ProductConfig, product_config
from .launch import launch
from .multiply import add_product, load_tile, store_mirrored, triangle, upper_tile

ALIGNMENT = 16
"""Orders, strides and addresses are multiples of it, in elements and bytes: accesses have 16 bytes then."""

_LARGEST_STRIDE = 2**23
"""Offsets within a tile have 32 bits."""

_SHARED_OPERANDS = (9, 10, 11)
"""Generations of NVIDIA's devices whose matrix instructions read shared memory."""


def symm_mm(
    A: Tensor,
    B: Tensor,
    *,
    C: Tensor | None,
    alpha: float,
    beta: float,
    out: Tensor,
    config: ProductConfig | None = None,
) -> None:
    """Write alpha·A B + beta·C to out."""
    _product(aligned(A), aligned(B), C if beta else None, alpha, beta, out, config)


def syrk(
    X: Tensor,
    *,
    C: Tensor | None,
    alpha: float,
    beta: float,
    side: str,
    out: Tensor,
    config: ProductConfig | None = None,
) -> None:
    """Write alpha·X Xᵀ + beta·C, or alpha·XᵀX + beta·C, to out."""
    X = aligned(X)
    left, right = (X, X.mT) if side == "left" else (X.mT, X)
    _product(left, right, C if beta else None, alpha, beta, out, config)


def padded(n: int) -> int:
    """Return the next multiple of `ALIGNMENT`."""
    return -(-n // ALIGNMENT) * ALIGNMENT


def aligned(X: Tensor) -> Tensor:
    """Return X as (batch, rows, columns) that a kernel reads 16 bytes at a time.

    That is X itself where its sizes and strides are multiples of 16 and one stride is 1, else a copy with zeros
    in rows and columns that fill up.
    """
    *_, m, n = X.shape
    X = X.reshape(X.shape[:-2].numel(), m, n)
    if m % ALIGNMENT or n % ALIGNMENT:
        return torch.nn.functional.pad(X, (0, padded(n) - n, 0, padded(m) - m))
    batch, *strides = X.stride()
    short, long = sorted(strides)
    fits = short == 1 and not long % ALIGNMENT and long <= _LARGEST_STRIDE
    if fits and not batch % ALIGNMENT and not X.data_ptr() % ALIGNMENT:
        return X
    return X.contiguous()


def configuration(device: torch.device, itemsize: int, order: int) -> ProductConfig:
    """Return the configuration for symmetric results of one order, from operands of so many bytes."""
    nvidia = device.type == "cuda" and torch.version.hip is None
    in_registers = nvidia and torch.cuda.get_device_capability(device)[0] not in _SHARED_OPERANDS
    return product_config(itemsize, padded(order), operands_in_registers=in_registers)


def by_configuration(
    batches: Sequence[Tensor], itemsize: int, config: ProductConfig | None
) -> dict[ProductConfig, list[int]]:
    """Return which batches, (count, rows, columns), are cut alike: all of them where a configuration is given."""
    found: dict[ProductConfig, list[int]] = {}
    for i, batch in enumerate(batches):
        own = config or configuration(batch.device, itemsize, batch.shape[-2])
        found.setdefault(own, []).append(i)
    return found


def _product(
    A: Tensor,
    B: Tensor,
    C: Tensor | None,
    alpha: float,
    beta: float,
    out: Tensor,
    config: ProductConfig | None,
) -> None:
    """Multiply aligned matrices; a result that is not aligned is computed elsewhere and copied."""
    if not out.numel():
        return
    batch, n, k = A.shape
    in_place = out.is_contiguous() and out.shape[-1] == n and not out.data_ptr() % ALIGNMENT
    target = out.view(-1, n, n) if in_place else torch.empty(batch, n, n, dtype=out.dtype, device=out.device)
    addend = target if C is None else _row_major(aligned(C))
    config = config or configuration(A.device, A.itemsize, n)
    launch(
        symmetric_product_kernel,
        (batch * config.upper_tiles(n),),
        (A, B, addend, target, n, k, *A.stride(), *B.stride(), *addend.stride()[:2], alpha, beta),
        config,
        HAS_ADDEND=C is not None,
        PRECISION=config.float32,
        BLOCK=config.block,
        BLOCK_K=config.block_k,
        EVEN=not n % config.block and not k % config.block_k,
    )
    if not in_place:
        out.copy_(target[:, : out.shape[-1], : out.shape[-1]].reshape(out.shape))


def _row_major(C: Tensor) -> Tensor:
    return C if C.stride(2) == 1 else C.contiguous()


@triton.jit
def symmetric_product_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    out_ptr,
    n,
    k,
    a_batch,
    a_row,
    a_column,
    b_batch,
    b_row,
    b_column,
    c_batch,
    c_row,
    alpha,
    beta,
    HAS_ADDEND: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Compute one tile of one matrix, and store it and its mirror image."""
    tiles = triangle(tl.cdiv(n, BLOCK))
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    j, i = upper_tile(tl.program_id(0) % tiles)
    a_ptr += matrix * a_batch
    b_ptr += matrix * b_batch
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    acc = add_product(
        acc, a_ptr, a_row, a_column, b_ptr, b_row, b_column, i, j, n, n, k, PRECISION, BLOCK, BLOCK_K, EVEN
    )
    acc *= alpha
    if HAS_ADDEND:
        acc += beta * load_tile(c_ptr + matrix * c_batch, i, j, n, n, c_row, BLOCK, EVEN)
    store_mirrored(out_ptr + matrix * n * n, acc, i, j, n, n, BLOCK, EVEN)
