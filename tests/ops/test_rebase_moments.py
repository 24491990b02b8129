"""rebase_moments_: Adam's moments carried into a refreshed basis."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kpop_kernels
from python_ref.kron import rebase_moments
from tests.errors import assert_accurate, unit_roundoff
from tests.matrices import factors, normal, signed_permutation
from tests.ops.grids import TWO_SIDED
from tests.ops.launch import CPU, LAYOUTS, Launcher, assert_compiles, assert_same_bits, outcome, strided

VARIANTS = ("composite", *CPU)
NARROW = (torch.float32, torch.bfloat16, torch.float16)
SERVED = [(variant, dtype) for variant in VARIANTS for dtype in NARROW] + [("composite", torch.float64)]
WRITTEN = ("exp_avg", "exp_avg_sq")


def arguments(generator, batch, m, n, kinds, dtype=torch.float32):
    exp_avg = normal(generator, *batch, m, n, dtype=dtype)
    exp_avg_sq = normal(generator, *batch, m, n).square().to(dtype)
    P_L, P_R = factors(generator, batch, (m, n), kinds, dtype)
    return {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "P_L": P_L, "P_R": P_R}


def bound(dtype):
    """The accuracy that the docstring states, and the rounding of a narrow moment."""
    if dtype == torch.float64:
        return 5e-7 * 2.0**-29
    return 5e-7 + (unit_roundoff(dtype) if dtype != torch.float32 else 0)


def check(variant, tensors):
    ours = outcome(Launcher("rebase_moments_", variant), tensors, WRITTEN)
    composite = outcome(Launcher("rebase_moments_", "composite"), tensors, WRITTEN)
    for name, *results in zip(WRITTEN, ours, composite, rebase_moments(*tensors.values()), strict=True):
        assert_accurate(*results, bound=bound(results[0].dtype), name=name)


@pytest.mark.parametrize(("variant", "dtype"), SERVED)
@pytest.mark.parametrize(("batch", "m", "n", "kinds"), TWO_SIDED)
def test_matches_reference(generator, variant, batch, m, n, kinds, dtype):
    check(variant, arguments(generator, batch, m, n, kinds, dtype))


@pytest.mark.parametrize("variant", VARIANTS)
def test_mixes_dtypes(generator, variant):
    tensors = arguments(generator, (2,), 9, 7, ("each", "shared"))
    check(variant, tensors | {"exp_avg": tensors["exp_avg"].bfloat16(), "P_L": tensors["P_L"].double()})


@pytest.mark.parametrize("variant", VARIANTS)
def test_leaves_inputs_unchanged(generator, variant):
    tensors = arguments(generator, (2,), 9, 7, ("each", "shared"))
    before = [tensors[name].clone() for name in ("P_L", "P_R")]
    Launcher("rebase_moments_", variant)(*tensors.values())
    assert_same_bits([tensors[name] for name in ("P_L", "P_R")], before)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strided_one", ["exp_avg", "exp_avg_sq", "P_L", "P_R"])
def test_layouts(generator, variant, layout, strided_one):
    tensors = arguments(generator, (2,), 9, 7, ("each", "shared"))
    check(variant, tensors | {strided_one: strided(tensors[strided_one], layout)})


@pytest.mark.parametrize("variant", VARIANTS)
def test_expanded_input(generator, variant):
    tensors = arguments(generator, (3,), 9, 7, ("each", "shared"))
    check(variant, tensors | {"P_L": tensors["P_L"][0].expand(3, 9, 9)})


ONES = torch.ones(2, 3)
REJECTED = [
    pytest.param(
        {"exp_avg_sq": ONES.T}, ValueError, r"exp_avg_sq has shape \(3, 2\), it must be \(2, 3\)", id="shape"
    ),
    pytest.param(
        {"P_L": torch.eye(3)}, ValueError, r"P_L has shape \(3, 3\), it must be \(2, 2\)", id="left"
    ),
    pytest.param(
        {"P_R": torch.ones(3)}, ValueError, r"P_R has shape \(3,\), it must be \(3, 3\)", id="right"
    ),
    pytest.param(
        {"exp_avg": ONES.int()}, TypeError, "exp_avg is torch.int32, it must be float32", id="integers"
    ),
    pytest.param({"P_R": torch.eye(3).bool()}, TypeError, "P_R is torch.bool", id="boolean"),
    pytest.param(
        {"P_R": torch.eye(3, device="meta")}, ValueError, "P_R is on meta, it must be on cpu", id="device"
    ),
    pytest.param({"exp_avg_sq": ONES[:1].expand(2, 3)}, ValueError, "exp_avg_sq is expanded", id="expanded"),
    pytest.param({"exp_avg": ONES.clone().requires_grad_()}, ValueError, "exp_avg requires grad", id="grad"),
    pytest.param({"P_R": torch.eye(3).requires_grad_()}, ValueError, "P_R requires grad", id="grad of P_R"),
]


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED)
def test_rejects(change, exception, message):
    accepted = {"exp_avg": torch.ones(2, 3), "exp_avg_sq": torch.ones(2, 3), "P_L": None, "P_R": None}
    with pytest.raises(exception, match="rebase_moments_: .*" + message):
        kpop_kernels.rebase_moments_(**(accepted | change))


def test_rejects_shared_memory():
    moments = torch.ones(3, 3)
    with pytest.raises(ValueError, match="exp_avg is written and shares memory with exp_avg_sq"):
        kpop_kernels.rebase_moments_(moments, moments, None, None)
    with pytest.raises(ValueError, match="exp_avg_sq is written and shares memory with P_R"):
        kpop_kernels.rebase_moments_(torch.ones(3, 3), moments, None, moments)


@pytest.mark.parametrize("variant", VARIANTS)
def test_deterministic(generator, variant):
    tensors = arguments(generator, (2,), 65, 63, ("each", "shared"))
    op = Launcher("rebase_moments_", variant)
    assert_same_bits(outcome(op, tensors, WRITTEN), outcome(op, tensors, WRITTEN))


@pytest.mark.parametrize("variant", VARIANTS)
def test_signed_permutations_are_exact(generator, variant):
    tensors = arguments(generator, (), 33, 17, ("none", "none"))
    P_L, P_R = (signed_permutation(generator, n, torch.float32) for n in (33, 17))
    moved = outcome(Launcher("rebase_moments_", variant), tensors | {"P_L": P_L, "P_R": P_R}, WRITTEN)
    rows, columns = P_L.abs().argmax(1), P_R.abs().argmax(1)
    signs = P_L.sum(1)[:, None] * P_R.sum(1)
    assert torch.equal(moved[0], signs * tensors["exp_avg"][rows][:, columns])
    assert torch.equal(moved[1], tensors["exp_avg_sq"][rows][:, columns])


@pytest.mark.parametrize("variant", VARIANTS)
def test_second_moment_stays_positive_and_keeps_its_sum(generator, variant):
    tensors = arguments(generator, (2,), 33, 17, ("each", "shared"))
    tensors["exp_avg_sq"][:, ::2] = 0
    _, moved = outcome(Launcher("rebase_moments_", variant), tensors, WRITTEN)
    assert (moved >= 0).all()
    torch.testing.assert_close(moved.sum((1, 2)), tensors["exp_avg_sq"].sum((1, 2)))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_bad_values_poison_only_their_matrix(generator, variant, bad):
    tensors = arguments(generator, (3,), 9, 7, ("each", "shared"))
    op = Launcher("rebase_moments_", variant)
    clean = outcome(op, tensors, WRITTEN)
    for name in WRITTEN:
        tensors[name][1, 2, 3] = bad
    poisoned = outcome(op, tensors, WRITTEN)
    assert not any(t[1].isfinite().any() for t in poisoned)
    assert_same_bits([t[[0, 2]] for t in poisoned], [t[[0, 2]] for t in clean])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kinds", [("each", "shared"), ("none", "shared")])
def test_opcheck(generator, kinds, dtype):
    tensors = arguments(generator, (2,), 5, 3, kinds, dtype)
    torch.library.opcheck(torch.ops.kpop.rebase_moments_.default, tuple(tensors.values()))


def test_compiles(generator):
    tensors = arguments(generator, (2,), 5, 3, ("each", "shared"))
    assert_compiles(kpop_kernels.rebase_moments_, tensors, WRITTEN)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    batch=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    sizes=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    kinds=st.tuples(*[st.sampled_from(["none", "shared", "each"])] * 2),
    layouts=st.tuples(*[st.sampled_from(["contiguous", *LAYOUTS])] * 4),
    variant=st.sampled_from(VARIANTS),
)
def test_any_shape_and_strides(batch, sizes, kinds, layouts, variant):
    tensors = arguments(torch.Generator().manual_seed(sizes[0]), batch, *sizes, kinds)
    pairs = zip(tensors.items(), layouts, strict=True)
    check(variant, {name: None if t is None else strided(t, layout) for (name, t), layout in pairs})
