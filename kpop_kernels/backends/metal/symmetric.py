"""Products known to be symmetric, on Apple GPUs: tiles of one triangle, each stored twice."""

import torch
from torch import Tensor

from .._dense import dense
from ._blocks import NAMES
from ._products import TILE, Lines, launch_tiles, lines


def symm_mm(A: Tensor, B: Tensor, *, C: Tensor | None, alpha: float, beta: float, out: Tensor) -> None:
    """Write alpha·A B + beta·C to out."""
    _product(lines(A), lines(B.mT), C, alpha, beta, out)


def syrk(X: Tensor, *, C: Tensor | None, alpha: float, beta: float, side: str, out: Tensor) -> None:
    """Write alpha·X Xᵀ + beta·C, or alpha·XᵀX + beta·C, to out, which may be C or of X's dtype or float32."""
    rows = lines(X if side == "left" else X.mT)
    _product(rows, rows, C, alpha, beta, out)


def _product(A: Lines, B: Lines, C: Tensor | None, alpha: float, beta: float, out: Tensor) -> None:
    n = out.shape[-1]
    if not out.numel():
        return
    if C is None or beta == 0:
        beta, addend = 0.0, out.new_zeros(1, dtype=torch.float32)
    else:
        addend = C.to(torch.float32).contiguous()
    side = -(-n // TILE)
    tiles = out.numel() // n**2 * (side * (side + 1) // 2)
    with dense(out) as (result,):
        launch_tiles(
            "symmetric",
            f"symmetric_product_{A.type}_{NAMES[result.dtype]}",
            tiles,
            A,
            B,
            (addend, result),
            [float(alpha), float(beta)],
        )
