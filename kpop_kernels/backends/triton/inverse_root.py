"""Inverse roots of a list of matrices of any sizes in one iteration."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...tuning import ProductConfig
from .._coupled import TINY, iterated_root
from .._lists import by_size, scatter, stack
from .._spectrum import Normalized, eigh_factor, normalize, spectrum_bound
from . import grouped
from .coupled import Products, Step, coupled_newton_schulz
from .symmetric import configuration, padded, syrk
from .workspace import Group, Workspace

_OPERANDS = {"fp16": torch.float16, "bf16": torch.bfloat16}


def inverse_root(A: Tensor, p: int, *, out: tuple[Tensor, Tensor], **options: Any) -> None:
    """Write (A + δI)^(-1/p) and the bound of the spectrum to out."""
    root, bound = out
    inverse_root_foreach([A], [root], [bound], p, **options)


def inverse_root_foreach(
    A: Sequence[Tensor],
    out: Sequence[Tensor],
    bounds: Sequence[Tensor],
    p: int,
    *,
    damping: float,
    relative_damping: float,
    method: str,
    schedule: Sequence[float],
    second_stage: Sequence[float],
    precision: str,
    halves: bool | None = None,
    config: ProductConfig | None = None,
) -> None:
    """Write the roots of a list and the bounds of the spectra; see `kpop_kernels.inverse_root`.

    The iteration serves "auto": no order is known for which a GPU finds eigenvalues faster. Precision "auto" is
    float32, by three products of tf32.

    Args:
        A: Matrices or batches of matrices.
        out: Where the roots go.
        bounds: Where the bounds go.
        p: Root.
        damping: Added to the diagonal.
        relative_damping: Added to the diagonal, in units of the bound.
        method: "eigh", or the iteration.
        schedule: Coefficients (a, b) of the steps, flat.
        second_stage: The same for the second iteration of p = 4.
        precision: Of the operands of products.
        halves: Whether Y and Z take half of the operations. By default only where operands are float32 and nothing
            is lost by it. In fp16 the error grows from 4e-3 to 1e-2 for a condition number of 1e4, and to 6e-2 for
            1e5: for factors that are known to be better conditioned.
        config: How products are cut into tiles; by default what suits the sizes.
    """
    for item, bound in zip(A, bounds, strict=True):
        if not item.numel():
            bound.zero_()
    sizes = by_size(A)
    tiny = [members for members in sizes if A[members[0]].shape[-1] <= TINY]
    large = [members for members in sizes if A[members[0]].shape[-1] > TINY]
    spectra, roots = [], []
    for members in (*tiny, *large):
        dtype = torch.float64 if members in tiny else torch.float32
        spectra.append(normalize(stack(A, members).to(dtype), damping, relative_damping))
    for spectrum in spectra[: len(tiny)]:
        roots.append(_tiny_root(spectrum, p, method, schedule, second_stage))
    if method == "eigh":
        roots += [_eigh_root(spectrum, p) for spectrum in spectra[len(tiny) :]]
    elif large:
        stages = (_steps(schedule), _steps(second_stage))
        roots += _iterated_roots(spectra[len(tiny) :], p, stages, precision, halves, config)
    for members, spectrum, root in zip((*tiny, *large), spectra, roots, strict=True):
        scatter(root, out, members)
        scatter(spectrum.bound * spectrum.unit, [bound[..., None, None] for bound in bounds], members)


def _steps(flat: Sequence[float]) -> list[Step]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _tiny_root(
    spectrum: Normalized, p: int, method: str, schedule: Sequence[float], second_stage: Sequence[float]
) -> Tensor:
    """Return the roots of a batch of matrices that kernels have no tiles for."""
    if method == "eigh":
        factor = eigh_factor(spectrum.Y, p)
        X = factor @ factor.mT
    else:
        X = iterated_root(spectrum.Y, p, schedule, second_stage)
    return (X + X.mT) / 2 * spectrum.scale(p)


def _eigh_root(spectrum: Normalized, p: int) -> Tensor:
    """Return the roots of a batch; the factor takes the scale's root, so that one product is the result."""
    factor = eigh_factor(spectrum.Y, p) * spectrum.scale(p).sqrt()
    root = torch.empty_like(spectrum.Y, memory_format=torch.contiguous_format)
    syrk(factor, C=None, alpha=1.0, beta=0.0, side="left", out=root)
    return root


def _iterated_roots(
    spectra: Sequence[Normalized],
    p: int,
    stages: tuple[Sequence[Step], Sequence[Step]],
    precision: str,
    halves: bool | None,
    config: ProductConfig | None,
) -> list[Tensor]:
    """Return the roots of each batch, all of them from one iteration."""
    dtype = _OPERANDS.get(precision, torch.float32)
    workspace = _workspace(spectra, dtype, config)
    float32 = "tf32" if precision == "tf32" else workspace.config.float32
    products = Products(dtype, float32, precision in ("auto", "fp32") if halves is None else halves)
    Y = workspace.filled([spectrum.Y for spectrum in spectra], wide=False)
    X = coupled_newton_schulz(workspace, Y, stages[0], products, want="Z")
    scales = [spectrum.scale(p) for spectrum in spectra]
    if p == 1:
        X = grouped.symmetric_product(workspace, X, X, out=torch.empty_like(X))
    if p == 4:
        bounds = [spectrum_bound(Z) for Z in workspace.squares(X)]
        for Z, bound in zip(workspace.squares(X), bounds, strict=True):
            Z.div_(bound)
        X = coupled_newton_schulz(workspace, X, stages[1], products, want="Y")
        scales = [scale * bound.sqrt() for scale, bound in zip(scales, bounds, strict=True)]
    return [root * scale for root, scale in zip(workspace.squares(X), scales, strict=True)]


def _workspace(spectra: Sequence[Normalized], dtype: torch.dtype, config: ProductConfig | None) -> Workspace:
    groups = [Group(*spectrum.Y.shape) for spectrum in spectra]
    device = spectra[0].Y.device
    if config is None:
        orders = [padded(group.rows) for group in groups for _ in range(group.matrices)]
        config = configuration(device, dtype.itemsize, orders)
    return Workspace(groups, config, device)
