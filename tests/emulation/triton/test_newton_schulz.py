"""Polar factors of lists in Triton's interpreter: both forms, their restart, bfloat16, launches."""

import pytest
import torch

from kpop_kernels import coefficients
from kpop_kernels.backends import composite
from kpop_kernels.tuning import ProductConfig
from python_ref import newton_schulz as oracle
from tests.emulation.triton import operators
from tests.errors import assert_accurate
from tests.guards import Guarded
from tests.ops.matrices import relative_error

pytestmark = pytest.mark.usefixtures("interpreted")

TILES = ProductConfig(block=32, block_k=32, num_warps=4, num_stages=3)
SHAPES = [(40, 40), (2, 20, 50), (70, 33), (1, 9), (3, 3)]
GRAM, SYMMETRIC, WIDE = "grouped_symmetric_kernel", "grouped_symmetric_kernel", "grouped_product_kernel"
NORMALIZED = ["band_squares_kernel", "band_divide_kernel"]
STANDARD_FORM = [*NORMALIZED, *[GRAM, SYMMETRIC, WIDE] * 5]
STEP_OF_GRAM_FORM = [SYMMETRIC] * 4
"""T, Q ← QT, and R ← TRT by two products."""
GRAM_FORM = [
    *NORMALIZED,
    *(GRAM, SYMMETRIC, SYMMETRIC, SYMMETRIC, SYMMETRIC, SYMMETRIC, WIDE),
    *(GRAM, SYMMETRIC, SYMMETRIC, SYMMETRIC, *STEP_OF_GRAM_FORM, SYMMETRIC, SYMMETRIC, WIDE),
]


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def low_rank_plus_noise(m, n, rank=4, noise=1e-4):
    return gaussian(m, rank) @ gaussian(rank, n, seed=1) / rank**0.5 + noise * gaussian(m, n, seed=2)


def factors(X, name="polar_express", steps=5, **options):
    """Return the factors of a list; every tensor lies between guard bands, X is only read."""
    polynomials = coefficients.polar_schedule(name, steps)
    options = {"method": "auto", "restarts": [2], "normalize": True, "eps": 0.0} | options
    options["coefficients"] = [c for polynomial in polynomials for c in polynomial]
    inputs = [Guarded(item) for item in X]
    out = [Guarded(torch.full(item.shape, torch.nan, dtype=item.dtype)) for item in X]
    lists = [[copy.tensor for copy in copies] for copies in (inputs, out)]
    operators.file_of("newton_schulz_foreach").newton_schulz_foreach(*lists, **options, config=TILES)
    for copy in inputs:
        copy.assert_unchanged("X")
    for copy in out:
        copy.assert_intact("out")
    return lists[1]


def expected(X, name="polar_express", steps=5):
    return oracle.map_singular_values(X, coefficients.polar_schedule(name, steps))


@pytest.mark.parametrize(("method", "launches"), [("standard", STANDARD_FORM), ("gram", GRAM_FORM)])
def test_mixed_shapes_in_one_launch_a_product(interpreted, method, launches):
    X = [gaussian(*shape) for shape in SHAPES]
    results = factors(X, method=method)
    assert interpreted == launches
    for item, result in zip(X, results, strict=True):
        steep = 5e-4 if item.shape[-1] == item.shape[-2] else 4e-5
        assert relative_error(result, expected(item)) <= steep


def test_auto_takes_each_form_where_it_has_fewer_operations(interpreted):
    X = [gaussian(10, 19), gaussian(10, 20)]
    results = factors(X)
    assert interpreted == STANDARD_FORM + GRAM_FORM
    assert torch.equal(results[0], factors(X[:1], method="standard")[0])
    assert torch.equal(results[1], factors(X[1:], method="gram")[0])


@pytest.mark.parametrize("name", ["cans", "muon"])
def test_other_coefficients(name):
    X = gaussian(20, 50)
    for method in ("standard", "gram"):
        assert relative_error(factors([X], name, method=method)[0], expected(X, name)) <= 4e-5


def test_gram_form_needs_its_restart_on_low_rank_plus_noise():
    X = low_rank_plus_noise(40, 160)
    with_restart, without = (factors([X], method="gram", restarts=r)[0] for r in ([2], []))
    assert relative_error(with_restart, expected(X)) <= 5e-3
    assert relative_error(without, expected(X)) > 10 * relative_error(with_restart, expected(X))


@pytest.mark.parametrize("method", ["standard", "gram"])
def test_bfloat16_is_multiplied_in_scaled_float16(method):
    X = gaussian(33, 140).bfloat16()
    (result,) = factors([X], method=method)
    plain = torch.empty_like(X)
    options = {"restarts": [2], "normalize": True, "eps": 0.0, "method": method}
    flat = [c for polynomial in coefficients.polar_schedule("polar_express", 5) for c in polynomial]
    composite.newton_schulz.newton_schulz(X, coefficients=flat, **options, out=plain)
    assert result.dtype == torch.bfloat16
    assert_accurate(result, plain, expected(X), bound=1e-2)
    (unrestarted,) = factors([X], method="gram", restarts=[])
    assert unrestarted.isfinite().all(), "the scale is too large for Q"


def test_bfloat16_is_multiplied_in_float32_where_float16_has_no_room():
    """Twelve steps of the Gram form without a restart multiply Q by 3e6."""
    X = gaussian(10, 30).bfloat16()
    (result,) = factors([X], "muon", 12, method="gram", restarts=[])
    (exact,) = factors([X.float()], "muon", 12, method="gram", restarts=[])
    assert torch.equal(result, exact.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_poison_zero_and_extreme_norms(dtype):
    X = gaussian(5, 10, 30).to(dtype)
    X[1, 3, 4] = torch.nan
    X[2] = 0
    X[3] *= 2.0**90
    X[4] *= 2.0**-90
    for method in ("standard", "gram"):
        (result,) = factors([X], method=method)
        assert result[1].isnan().all() and not result[2].any()
        tolerance = 4e-5 if dtype == torch.float32 else 8e-3
        assert relative_error(result[[0, 3, 4]], expected(X[[0, 3, 4]])) <= tolerance


def test_without_normalization_and_empty():
    X = gaussian(10, 12)
    X = X / torch.linalg.matrix_norm(X, 2)
    ours = X.double()
    for a, b, c in coefficients.polar_schedule("polar_express", 5):
        A = ours @ ours.mT
        ours = a * ours + (b * A + c * A @ A) @ ours
    assert relative_error(factors([X], normalize=False)[0], ours) <= 1e-4
    shapes = [(0, 3, 4), (2, 0, 4), (2, 4, 0)]
    assert [tuple(r.shape) for r in factors([torch.empty(shape) for shape in shapes])] == shapes


def test_one_matrix_goes_the_same_way(interpreted):
    X = gaussian(3, 9, 20)[:, :, ::2]
    options = {"method": "auto", "restarts": [2], "normalize": True, "eps": 1e-7}
    flat = [c for polynomial in coefficients.polar_schedule("muon", 2) for c in polynomial]
    (result,) = operators.run("newton_schulz", {"X": X}, coefficients=flat, **options, config=TILES)
    assert torch.equal(result, factors([X], "muon", 2, eps=1e-7)[0])


@pytest.mark.parametrize("method", ["standard", "gram"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_factor_has_the_same_bits_alone_in_a_batch_and_in_a_list(method, dtype):
    """Sums that find the norms, and tiles, are chosen by the matrix alone; few steps do not hide a difference."""
    options = {"method": method, "steps": 1, "name": "muon", "restarts": []}
    X = [gaussian(5, *shape).to(dtype) for shape in ((9, 30), (40, 40), (70, 20))]
    listed = factors([*X, X[0][:2]], **options)
    for item, factor in zip(X, listed, strict=False):
        (part,) = factors([item[3:]], **options)
        assert torch.equal(part, factor[3:])
    assert torch.equal(listed[3], listed[0][:2])
