"""Inverse roots of a list of matrices of any sizes in one iteration, each with the bits that it has alone."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...tuning import ProductConfig
from .._lists import by_size, scatter, stack
from .._spectrum import TINY, eigh_factor, normalize
from . import grouped
from .coupled import Products, Step, coupled_newton_schulz
from .spectrum import normalize_
from .symmetric import by_configuration, syrk
from .tiny_root import tiny_roots
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
    batches = [stack(A, members) for members in sizes]
    tiny = [i for i, batch in enumerate(batches) if batch.shape[-1] <= TINY]
    large = [i for i, batch in enumerate(batches) if batch.shape[-1] > TINY]
    found: dict[int, tuple[Tensor, Tensor]] = {}
    if method == "eigh":
        for i in (*tiny, *large):
            found[i] = _eigh_roots(batches[i], p, damping, relative_damping)
    else:
        options = {"damping": damping, "relative_damping": relative_damping}
        for i in tiny:
            S = batches[i].to(torch.float32)
            found[i] = tiny_roots(S, p, schedule=schedule, second_stage=second_stage, **options)
        stages = (_steps(schedule), _steps(second_stage))
        roots = _iterated_roots([batches[i] for i in large], p, stages, precision, halves, config, **options)
        found.update(zip(large, roots, strict=True))
    for i, members in enumerate(sizes):
        root, bound = found[i]
        scatter(root, out, members)
        scatter(bound, [item[..., None, None] for item in bounds], members)


def _steps(flat: Sequence[float]) -> list[Step]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _eigh_roots(A: Tensor, p: int, damping: float, relative_damping: float) -> tuple[Tensor, Tensor]:
    """Return the roots of a batch and the bounds of the spectra, tiny matrices in float64."""
    tiny = A.shape[-1] <= TINY
    spectrum = normalize(A.to(torch.float64 if tiny else torch.float32), damping, relative_damping)
    # The factor takes the scale's root, so that one product is the result.
    factor = eigh_factor(spectrum.Y, p) * spectrum.scale(p).sqrt()
    if tiny:
        root = factor @ factor.mT
        root = (root + root.mT) / 2
    else:
        root = torch.empty_like(spectrum.Y, memory_format=torch.contiguous_format)
        syrk(factor, C=None, alpha=1.0, beta=0.0, side="left", out=root)
    return root, spectrum.bound * spectrum.unit


def _iterated_roots(
    batches: Sequence[Tensor],
    p: int,
    stages: tuple[Sequence[Step], Sequence[Step]],
    precision: str,
    halves: bool | None,
    config: ProductConfig | None,
    **damping: float,
) -> list[tuple[Tensor, Tensor]]:
    """Return the roots of each batch and the bounds of their spectra, one iteration for all that are cut alike."""
    dtype = _OPERANDS.get(precision, torch.float32)
    halves = precision in ("auto", "fp32") if halves is None else halves
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for own, members in by_configuration(batches, dtype.itemsize, config).items():
        workspace = Workspace([Group(*batches[i].shape) for i in members], own, batches[0].device)
        products = Products(dtype, "tf32" if precision == "tf32" else own.float32, halves)
        symmetric = (_symmetric_part(batches[i].to(torch.float32)) for i in members)
        Y = workspace.filled(list(symmetric), wide=False)
        bounds = normalize_(workspace, Y, **damping)
        X = coupled_newton_schulz(workspace, Y, stages[0], products, want="Z")
        if p == 1:
            X = grouped.symmetric_product(workspace, X, X, out=torch.empty_like(X))
        scales = [_scale(bound, p) for bound in bounds]
        if p == 4:
            largest = normalize_(workspace, X)
            X = coupled_newton_schulz(workspace, X, stages[1], products, want="Y")
            scales = [scale * bound.sqrt() for scale, bound in zip(scales, largest, strict=True)]
        roots = (root * s.float() for root, s in zip(workspace.squares(X), scales, strict=True))
        found.update(zip(members, zip(roots, bounds, strict=True), strict=True))
    return [found[i] for i in range(len(batches))]


def _symmetric_part(S: Tensor) -> Tensor:
    return S / 2 + S.mT / 2


def _scale(bound: Tensor, p: int) -> Tensor:
    """Return bound^(-1/p) by operations that are rounded correctly everywhere: 0 for 0, NaN for negative ones."""
    power = bound if p == 1 else bound.sqrt() if p == 2 else bound.sqrt().sqrt()
    return torch.where(bound == 0, 0.0, torch.where(bound > 0, 1 / power, torch.nan))
