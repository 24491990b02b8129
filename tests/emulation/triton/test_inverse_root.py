"""Inverse roots of lists in Triton's interpreter: every root, hard matrices, memory, dtypes, launches."""

import pytest
import torch

from kpop_kernels._schema import OPERATORS
from kpop_kernels.tuning import ProductConfig
from python_ref.inverse_root import inverse_root as true_inverse_root
from python_ref.inverse_root import spectrum_bound
from tests.emulation.triton import operators
from tests.emulation.triton.test_coupled import LAUNCHES, NORMALIZED
from tests.guards import Guarded
from tests.ops.matrices import relative_error, root_options, spd

pytestmark = pytest.mark.usefixtures("interpreted")

TILES = ProductConfig(block=32, block_k=32, num_warps=4, num_stages=3)
SECOND_STAGE = len(NORMALIZED) + 2 * 7 - 1


def roots(A, p=2, steps=None, **options):
    """Return the roots of a list and the bounds; every tensor lies between guard bands, A is only read."""
    inputs = [Guarded(item) for item in A]
    out = [Guarded(torch.full(item.shape, torch.nan, dtype=item.dtype)) for item in A]
    bounds = [Guarded(torch.full(item.shape[:-2], torch.nan)) for item in A]
    lists = [[copy.tensor for copy in copies] for copies in (inputs, out, bounds)]
    options = root_options(**options)
    if steps is not None:
        options["schedule"] = steps
    operators.file_of("inverse_root_foreach").inverse_root_foreach(*lists, p, **options, config=TILES)
    for copy in inputs:
        copy.assert_unchanged("A")
    for copy in (*out, *bounds):
        copy.assert_intact("out")
    return lists[1], lists[2]


def test_mixed_sizes_in_one_iteration(interpreted):
    """Tiny orders, in float64, stay within the bound too."""
    tiny = [spd(n, 1e4, spectrum) for n in (1, 2, 3, 8) for spectrum in ("log", "spike", "two")]
    A = [*tiny, spd(9, 1e4), spd(33, 1e4)[0], spd(20, 1e4, "power")]
    found, bounds = roots(A)
    assert interpreted == ["tiny_root_kernel"] * 4 + LAUNCHES
    for item, root, bound in zip(A, found, bounds, strict=True):
        assert relative_error(root, true_inverse_root(item, 2)) <= 2e-4
        assert torch.equal(root, root.mT)
        torch.testing.assert_close(bound.double(), spectrum_bound(item), rtol=1e-5, atol=0)


@pytest.mark.parametrize(("p", "more"), [(1, 1), (4, SECOND_STAGE)])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 4e-4), ("fp16", 1.6e-2)])
def test_other_roots(interpreted, p, more, precision, tolerance):
    A = [spd(17, 1e3), spd(9, 1e4)[0], spd(5, 1e3)]
    found, _ = roots(A, p, precision=precision, damping=1e-5)
    assert len(interpreted) == 1 + len(LAUNCHES) + more
    for item, root in zip(A, found, strict=True):
        assert relative_error(root, true_inverse_root(item, p, damping=1e-5)) <= tolerance
        assert torch.equal(root, root.mT)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_eigenvalues_where_they_are_asked_for(interpreted, p):
    A = [spd(20, 1e3), torch.zeros(1, 20, 20), spd(5, 1e2)[0]]
    found, _ = roots(A, p, method="eigh")
    assert interpreted == ["symmetric_product_kernel"]
    for item, root in zip(A[::2], found[::2], strict=True):
        assert relative_error(root, true_inverse_root(item, p)) <= 1e-3
        assert torch.equal(root, root.mT)
    assert not found[1].any()


def test_hard_matrices_do_not_meet():
    """Poison in one matrix is in its root alone; zero, extreme norms and singular matrices have finite answers."""
    A = spd(20, 1e3, batch=7).clone()
    A[1, 19, 0] = torch.nan
    A[2, 0, 0] = torch.inf
    A[3] = 0
    A[4] *= 1e-30
    A[5] *= 1e30
    A[6] = torch.outer(A[0, 0], A[0, 0])
    ((found, poisoned), _) = roots([A, torch.full((2, 2), torch.nan)])
    assert found[1].isnan().all() and found[2].isnan().all() and poisoned.isnan().all()
    assert not found[3].any()
    assert found[6].isfinite().all()
    regular = [0, 4, 5]
    assert relative_error(found[regular], true_inverse_root(A[regular], 2)) <= 2e-4
    ((again, _), _) = roots([A, torch.full((2, 2), torch.nan)])
    assert torch.equal(again[regular], found[regular])


def test_damping_and_slightly_negative_eigenvalues():
    A = spd(20, 1e4).clone()
    A[1] -= 1e-3 * torch.eye(20)
    ((found,), (bound,)) = roots([A], damping=2e-3, relative_damping=1e-3)
    oracle = true_inverse_root(A, 2, damping=2e-3, relative_damping=1e-3)
    assert relative_error(found, oracle) <= 2e-4
    assert (bound > torch.linalg.eigvalsh(A).amax(-1)).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_narrow_matrices_are_computed_in_float32(dtype):
    A = spd(17, 1e2).to(dtype)
    ((found,), (bound,)) = roots([A])
    assert found.dtype == dtype and bound.dtype == torch.float32
    tolerance = {torch.bfloat16: 4e-3, torch.float16: 6e-4}[dtype]
    assert relative_error(found, true_inverse_root(A, 2)) <= tolerance


def test_views_and_empty_batches():
    A = spd(20, 1e3, batch=4)
    spread = torch.zeros(4, 50, 41)[:, :40:2, ::2][..., :20]
    spread.copy_(A)
    empty = [torch.empty(0, 4, 4), torch.empty(3, 0, 0)]
    found, bounds = roots([A.view(2, 2, 20, 20), spread, A[:1].expand(2, 20, 20), *empty])
    assert torch.equal(found[0].view(4, 20, 20), found[1])
    assert torch.equal(found[2], found[1][:1].expand(2, 20, 20))
    assert [b.tolist() for b in bounds[3:]] == [[], [0.0] * 3]
    assert roots([]) == ([], [])


def test_one_matrix_goes_the_same_way():
    A = spd(9, 1e2)
    root, bound = OPERATORS["inverse_root"].guarded(operators.file_of("inverse_root").inverse_root)(
        A, 2, **root_options()
    )
    ((expected,), (expected_bound,)) = roots([A])
    assert torch.equal(root, expected) and torch.equal(bound, expected_bound)


FEW_STEPS = [2.5, -1.4, 1.6, -0.6]


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("precision", ["auto", "fp16"])
def test_a_root_has_the_same_bits_alone_in_a_batch_and_in_a_list(p, precision):
    """Sums that find the bounds, and tiles, are chosen by the matrix alone; few steps do not hide a difference."""
    options = {"precision": precision, "steps": FEW_STEPS, "damping": 1e-3}
    sizes = (3, 8, 9, 33, 70)
    A = [spd(n, 1e4, batch=5) for n in sizes]
    listed, bounds = roots([*A, A[3][:2], torch.zeros(1, 16, 16)], p, **options)
    for item, root, bound in zip(A, listed, bounds, strict=False):
        for matrices in (slice(4, 5), slice(1, 3)):
            ((part,), (part_bound,)) = roots([item[matrices]], p, **options)
            assert torch.equal(part, root[matrices]) and torch.equal(part_bound, bound[matrices])
    assert (
        torch.equal(listed[5], listed[3][:2])
        and not listed[6].sub(1e-3 ** (-1 / p) * torch.eye(16)).gt(1).any()
    )


def test_powers_of_16_scale_exactly():
    A = [spd(n, 1e3, batch=1) for n in (5, 20)]
    for p in (1, 2, 4):
        found, bounds = roots(A, p, steps=FEW_STEPS)
        for exponent in (-96, 16, 96):
            scaled, scaled_bounds = roots([a * 2.0**exponent for a in A], p, steps=FEW_STEPS)
            for root, bound, other, other_bound in zip(found, bounds, scaled, scaled_bounds, strict=True):
                assert torch.equal(other, root * 2.0 ** (-exponent / p))
                assert torch.equal(other_bound, bound * 2.0**exponent)
