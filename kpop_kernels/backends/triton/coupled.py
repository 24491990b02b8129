"""The coupled Newton–Schulz iteration: two launches a step for matrices of any sizes.

A step computes P = Z Y in full, and in a second launch Y ← aY + bYP and Z ← aZ + bPZ. Of Y and Z, which are
symmetric, the tiles above the diagonal are computed and stored twice; P must not be treated like that, or the
iteration diverges.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import coefficients
from ...coefficients import Maxima
from . import grouped
from .launch import launch
from .multiply import add_product, load_tile, store_mirrored, store_tile, triangle, upper_tile
from .workspace import ROWS, SQUARE_OFFSET, TRIANGLE, Workspace, group_of_program, place, size

Step = tuple[float, float]


@dataclass(frozen=True)
class Products:
    """How the products of an iteration are computed.

    Attributes:
        dtype: Of their operands; Y and Z themselves are carried in float32.
        float32: How float32 operands are multiplied.
        halves: Whether Y and Z take one product a tile. Else they take the mean of it and its transpose, which is
            as much work as a product in full.
    """

    dtype: torch.dtype
    float32: str
    halves: bool


def coupled_newton_schulz(
    workspace: Workspace, Y: Tensor, schedule: Sequence[Step], products: Products, *, want: str
) -> Tensor:
    """Return Y^(1/2) or Y^(-1/2) in float32, symmetric bit for bit.

    The first step needs one product, because P = Y and Z = I; the last one computes only what is wanted.

    Args:
        workspace: Where the matrices are.
        Y: Buffer of squares in float32, symmetric, their spectra in [0, 1].
        schedule: Coefficients (a, b) of each step.
        products: How to multiply.
        want: "Y" for Y^(1/2), "Z" for Y^(-1/2).
    """
    scales, last = _scales(schedule, products.dtype), len(schedule) - 1
    iteration = Iteration(workspace, products, Y * scales[0].Y)
    for step, (a, b) in enumerate(schedule):
        now, then = scales[step], scales[step + 1]
        if step == 0:
            Z = iteration.first_Z(a * then.Z, b * then.Z / now.Y)
            if last == 0 and want == "Z":
                return Z
            scale_of_P, which = now.Y, "Y"
        else:
            iteration.multiply(now.P / (now.Z * now.Y))
            scale_of_P, which = now.P, "YZ"
        for_Y = (a * then.Y / now.Y, b * then.Y / (now.Y * scale_of_P))
        for_Z = (a * then.Z / now.Z, b * then.Z / (now.Z * scale_of_P))
        if step == last:
            return iteration.update(want, for_Y, for_Z, final=True)
        iteration.update(which, for_Y, for_Z)
    raise AssertionError("a schedule has at least one step")


def _scales(schedule: Sequence[Step], dtype: torch.dtype) -> list[Maxima]:
    """Return what Y, Z and P are multiplied by before each step and after the last: float16 has a narrow range."""
    unscaled = Maxima(1.0, 1.0, 1.0)
    if dtype != torch.float16:
        return [unscaled] * (len(schedule) + 1)
    return [*coefficients.power_of_two_scales(tuple(schedule))[:-1], unscaled]


class Iteration:
    """Y and Z as two buffers of squares, the operands of products, and in float32 where operands are narrower.

    Operands go from one pair of buffers to another, because programs still read those that others replace. What is
    carried in float32 is replaced in its place, and only its tiles on and above the diagonal have a meaning.
    """

    def __init__(self, workspace: Workspace, products: Products, Y: Tensor) -> None:
        self._workspace, self._products = workspace, products
        self._operands, self._following = Y.new_empty(2, 2, *Y.shape, dtype=products.dtype)
        self._operands[0].copy_(Y)
        self._P: Tensor | None = None
        self._carry = None if products.dtype == torch.float32 else torch.stack((Y, Y))

    def first_Z(self, a: float, b: float) -> Tensor:
        """Make Z ← aI + bY what follows, and return it in float32."""
        Z = self._following[1] if self._carry is None else self._carry[1]
        torch.mul(self._operands[0] if self._carry is None else self._carry[0], b, out=Z)
        for squares in self._workspace.squares(Z):
            squares.diagonal(dim1=-2, dim2=-1).add_(a)
        if self._carry is not None:
            self._following[1].copy_(Z)
        return Z

    def multiply(self, alpha: float) -> None:
        """Compute P ← alpha·Z Y."""
        Y, Z = self._operands
        P = torch.empty_like(Y) if self._P is None else self._P
        precision = self._products.float32
        self._P = grouped.product(self._workspace, Z, Y, out=P, alpha=alpha, precision=precision, wide=False)

    def update(self, which: str, for_Y: Step, for_Z: Step, *, final: bool = False) -> Tensor:
        """Compute Y ← aY + bYP, Z ← aZ + bPZ or both, and return them; the final one in float32.

        Before the first product P is Y, and Y Y is symmetric by itself.
        """
        Y = self._operands[0]
        out = torch.empty_like(Y, dtype=torch.float32)[None] if final else self._following
        config = self._workspace.config
        halves = self._products.halves or self._P is None
        share = 1.0 if halves else 0.5
        launch(
            coupled_update_kernel,
            (self._workspace.end.triangle, len(which)),
            (
                self._workspace.table,
                self._operands,
                Y if self._P is None else self._P,
                self._operands if self._carry is None else self._carry,
                out,
                Y.numel(),
                0 if "Y" in which else 1,
                *(for_Y[0], share * for_Y[1], for_Z[0], share * for_Z[1]),
            ),
            config,
            GROUPS=len(self._workspace.table),
            IS_CARRIED=self._carry is not None,
            HALVES=halves,
            PRECISION=self._products.float32,
            BLOCK=config.block,
            BLOCK_K=config.block_k,
            EVEN=self._workspace.even,
        )
        if final:
            return out[0]
        self._operands, self._following = self._following, self._operands
        return out


# 24 n² bytes a step for 16-bit operands: 6 for P; then 6 for operands, 8 for float32 values, 4 for what follows.
@triton.jit(do_not_specialize=["first"])
def coupled_update_kernel(
    table_ptr,
    state_ptr,
    p_ptr,
    carry_ptr,
    out_ptr,
    elements,
    first,
    a_of_y,
    b_of_y,
    a_of_z,
    b_of_z,
    GROUPS: tl.constexpr,
    IS_CARRIED: tl.constexpr,
    HALVES: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Compute one tile of Y or Z of one matrix, and store it and its mirror image."""
    row_ptr, t = group_of_program(table_ptr, TRIANGLE, GROUPS)
    n = size(row_ptr, ROWS)
    tiles = triangle(tl.cdiv(n, BLOCK))
    i, j = upper_tile(t % tiles)
    start = place(row_ptr, SQUARE_OFFSET, t // tiles, n, n)
    is_y = tl.program_id(1) + first == 0
    own = (tl.program_id(1) + first).to(tl.int64) * elements + start
    left = tl.where(is_y, state_ptr + own, p_ptr + start)
    right = tl.where(is_y, p_ptr + start, state_ptr + own)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    acc = add_product(acc, left, n, 1, right, n, 1, i, j, n, n, n, PRECISION, BLOCK, BLOCK_K, EVEN)
    if not HALVES:
        acc = add_product(acc, right, 1, n, left, 1, n, i, j, n, n, n, PRECISION, BLOCK, BLOCK_K, EVEN)
    old = load_tile(carry_ptr + own, i, j, n, n, n, BLOCK, EVEN)
    new = tl.where(is_y, a_of_y, a_of_z) * old + tl.where(is_y, b_of_y, b_of_z) * acc
    if IS_CARRIED:
        store_tile(carry_ptr + own, new, i, j, n, n, n, BLOCK, EVEN)
    store_mirrored(out_ptr + tl.program_id(1).to(tl.int64) * elements + start, new, i, j, n, n, BLOCK, EVEN)
