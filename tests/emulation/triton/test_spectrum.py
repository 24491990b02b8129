"""Bounds of spectra and norms in Triton's interpreter, against their formulas; planted bugs are found."""

import pytest
import torch

from kpop_kernels.tuning import ProductConfig
from python_ref.inverse_root import spectrum_bound
from tests.emulation.triton import operators
from tests.emulation.triton.guarded import mutant
from tests.ops.matrices import spd

pytestmark = pytest.mark.usefixtures("interpreted")

TILES = ProductConfig(block=32, block_k=32, num_warps=4, num_stages=3)
SIZES = ((2, 9, 40), (1, 33, 33), (3, 17, 17), (1, 80, 130))
"""Count, rows and columns of each group: one band and several, chunks that are cut, rows that fill up."""


def workspace_of(sizes):
    from kpop_kernels.backends.triton.workspace import Group, Workspace

    return Workspace([Group(*size) for size in sizes], TILES, torch.device("cpu"))


def check_normalized(spectrum, *, damping=0.0, relative_damping=0.0):
    """Require bounds that are those of the formula and matrices that are divided by them."""
    workspace = workspace_of(SIZES)
    S = [spd(m, 1e3, batch=count, seed=m) * 7.0**i for i, (count, m, _) in enumerate(SIZES)]
    S[2] = -S[2]
    S[2][1] = 0
    buffer = workspace.filled(S, wide=False)
    bounds = spectrum.normalize_(workspace, buffer, damping, relative_damping)
    for y, s, bound in zip(workspace.squares(buffer), S, bounds, strict=True):
        delta = damping + relative_damping * spectrum_bound(s)
        expected = spectrum_bound(s) + 1.01 * delta
        torch.testing.assert_close(bound.flatten(), expected, rtol=1e-12, atol=0)
        shifted = s.double() + delta[:, None, None] * torch.eye(s.shape[-1])
        divisor = torch.where(bound == 0, 1.0, bound)
        torch.testing.assert_close(y, (shifted / divisor).float(), rtol=1e-6, atol=1e-12)
        y.zero_()
    assert not buffer.any(), "the filling is not zero"


def check_divided(spectrum, eps=0.25):
    workspace = workspace_of(SIZES)
    generator = torch.Generator().manual_seed(0)
    X = [torch.randn(*size, generator=generator) * 3.0**i for i, size in enumerate(SIZES)]
    X[0][1] = 0
    buffer = workspace.filled(X, wide=True)
    spectrum.normalize_wide_(workspace, buffer, eps)
    for y, x in zip(workspace.wides(buffer), X, strict=True):
        norm = torch.linalg.matrix_norm(x.double(), keepdim=True) + eps
        torch.testing.assert_close(y, (x / norm.clamp_min(1e-300)).float(), rtol=1e-6, atol=1e-12)
        y.zero_()
    assert not buffer.any(), "the filling is not zero"


def test_bounds_and_norms(interpreted):
    spectrum = operators.imported("spectrum")
    check_normalized(spectrum)
    check_normalized(spectrum, damping=0.5, relative_damping=1e-2)
    check_divided(spectrum)
    check_divided(spectrum, eps=0.0)
    normalize = ["band_sums_kernel", "band_ratios_kernel", "band_normalize_kernel"]
    assert interpreted == normalize * 2 + ["band_squares_kernel", "band_divide_kernel"] * 2


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_squares_do_not_overflow(scale):
    spectrum, workspace = operators.imported("spectrum"), workspace_of([(1, 20, 20)])
    buffer = workspace.filled([spd(20, 10.0, batch=1) * scale], wide=False)
    (bound,) = spectrum.normalize_(workspace, buffer)
    torch.testing.assert_close(
        bound.flatten(), spectrum_bound(spd(20, 10.0, batch=1) * scale), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
def test_poison_stays_in_its_matrix(poison):
    spectrum, workspace = operators.imported("spectrum"), workspace_of([(3, 40, 40)])
    S = spd(40, 10.0, batch=3).clone()
    S[1, 3, 39] = S[1, 39, 3] = poison
    buffer = workspace.filled([S], wide=False)
    (bound,) = spectrum.normalize_(workspace, buffer)
    assert bound.isfinite().flatten().tolist() == [True, False, True] and bound[1].isnan().all()
    (y,) = workspace.squares(buffer)
    assert y[[0, 2]].isfinite().all() and y[1].isnan().all()


BUGS = [
    ("magnitudes += tl.sum(tl.abs(x), axis=1)", "magnitudes = tl.sum(tl.abs(x), axis=1)"),
    ("squares += tl.sum(x * x, axis=1)\n    r =", "squares += tl.sum(x, axis=1)\n    r ="),
    ("% (m // BAND_ROWS) * BAND_ROWS", "% (m // BAND_ROWS)"),
    ("load_operand(row_ptr + VECTOR) + matrix * m", "load_operand(row_ptr + VECTOR)"),
    ("& (c < order)[None, :]", "& (c < n)[None, :]"),
    ("load_operand(s_ptr + start + r * (n + 1))", "load_operand(s_ptr + start + r)"),
    ("tl.fdiv(products, own)", "products"),
    ("tl.where(bound == 0.0, 1.0, tl.fdiv(1.0, bound))", "tl.fdiv(1.0, bound)"),
    ("WIDE_OFFSET if IS_WIDE else SQUARE_OFFSET", "WIDE_OFFSET"),
    (")) + eps", "))"),
]


@pytest.mark.parametrize(("old", "new"), BUGS, ids=[bug[1] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, old, new):
    broken = mutant(operators.imported("spectrum"), tmp_path, {old: new})
    failures = (AssertionError, broken.triton.runtime.errors.InterpreterError)
    with pytest.raises(failures, match=r"close|filling|OutOfBounds"):
        check_normalized(broken, damping=0.5, relative_damping=1e-2)
        check_normalized(broken)
        check_divided(broken)
