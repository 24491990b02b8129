"""gram_ema_: S ← beta·S + alpha·X Xᵀ or XᵀX, exactly symmetric."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kpop_kernels
from python_ref.gram import gram_ema
from tests.errors import assert_accurate, unit_roundoff
from tests.matrices import covariance, normal
from tests.ops.launch import (
    CPU,
    FUSING,
    LAYOUTS,
    Launcher,
    assert_compiles,
    assert_same_bits,
    outcome,
    strided,
)

VARIANTS = ("composite", *CPU)
WRITTEN = ("S",)
SCALARS = {"beta": 0.75, "alpha": 0.125}

GRID = [
    # batch, n, k, side
    pytest.param((), 1, 1, "left", id="one number"),
    pytest.param((), 2, 3, "right", id="the smallest matrix with an upper triangle"),
    pytest.param((), 63, 65, "left", id="one below and above a tile"),
    pytest.param((), 64, 64, "right", id="whole tiles"),
    pytest.param((), 65, 63, "right", id="one above and below a tile"),
    pytest.param((), 257, 257, "left", id="prime, several tiles"),
    pytest.param((), 96, 4096, "left", id="long sums"),
    pytest.param((), 1, 257, "left", id="a dot product"),
    pytest.param((), 65, 1, "left", id="rank one"),
    pytest.param((3,), 65, 33, "right", id="batch"),
    pytest.param((2, 3), 5, 7, "left", id="two batch dimensions"),
    pytest.param((0,), 5, 7, "left", id="empty batch"),
    pytest.param((), 0, 7, "left", id="n=0"),
    pytest.param((), 7, 0, "left", id="k=0: decay only"),
]


def arguments(generator, batch, n, k, side, dtype=torch.float32):
    X_shape = (*batch, n, k) if side == "left" else (*batch, k, n)
    return {
        "S": covariance(generator, *batch, n, n, dtype=dtype),
        "X": normal(generator, *X_shape, dtype=dtype),
    }


def bound(dtype):
    """The accuracy that the docstring states, and the rounding of S to a narrow dtype."""
    if dtype == torch.float64:
        return 3e-7 * 2.0**-29
    return 3e-7 + (unit_roundoff(dtype) if dtype != torch.float32 else 0)


def check(variant, tensors, side):
    scalars = {**SCALARS, "side": side}
    (ours,) = outcome(Launcher("gram_ema_", variant), tensors, WRITTEN, **scalars)
    (composite,) = outcome(Launcher("gram_ema_", "composite"), tensors, WRITTEN, **scalars)
    oracle = gram_ema(tensors["S"], tensors["X"], **scalars)
    assert torch.equal(ours, ours.mT)
    assert_accurate(ours, composite, oracle, bound=bound(ours.dtype), name="S")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("batch", "n", "k", "side"), GRID)
def test_matches_reference(generator, variant, batch, n, k, side, dtype):
    check(variant, arguments(generator, batch, n, k, side, dtype), side)


@pytest.mark.parametrize(("batch", "n", "k", "side"), GRID)
def test_matches_reference_in_float64(generator, batch, n, k, side):
    check("composite", arguments(generator, batch, n, k, side, torch.float64), side)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("S_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("X_dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_mixes_dtypes(generator, variant, S_dtype, X_dtype):
    tensors = arguments(generator, (), 33, 17, "left", S_dtype)
    check(variant, tensors | {"X": tensors["X"].to(X_dtype)}, "left")


@pytest.mark.parametrize("variant", VARIANTS)
def test_leaves_inputs_unchanged(generator, variant):
    tensors = arguments(generator, (2,), 33, 17, "left")
    X = tensors["X"].clone()
    Launcher("gram_ema_", variant)(tensors["S"], tensors["X"], **SCALARS, side="left")
    assert_same_bits([tensors["X"]], [X])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strided_one", ["S", "X"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_layouts(generator, variant, layout, strided_one, side):
    tensors = arguments(generator, (2,), 35, 9, side)
    check(variant, tensors | {strided_one: strided(tensors[strided_one], layout)}, side)


@pytest.mark.parametrize("variant", VARIANTS)
def test_expanded_input(generator, variant):
    tensors = arguments(generator, (3,), 7, 5, "left")
    check(variant, tensors | {"X": tensors["X"][0].expand(3, 7, 5)}, "left")
    check(variant, tensors | {"X": tensors["X"][:, :, :1].expand(3, 7, 5)}, "left")


REJECTED = [
    pytest.param(
        {"side": "both"}, ValueError, "side is 'both', it must be one of 'left', 'right'", id="side"
    ),
    pytest.param(
        {"X": torch.ones(4, 5)}, ValueError, r"S has shape \(3, 3\), it must be \(4, 4\)", id="size"
    ),
    pytest.param({"X": torch.ones(2, 3, 5)}, ValueError, r"it must be \(2, 3, 3\) like X Xᵀ", id="batch"),
    pytest.param(
        {"X": torch.ones(3)}, ValueError, r"X has shape \(3,\), it must be \(\.\.\., rows", id="vector"
    ),
    pytest.param(
        {"S": torch.ones(3, 3).int()}, TypeError, "S is torch.int32, it must be float32", id="integers"
    ),
    pytest.param({"X": torch.ones(3, 5) * 1j}, TypeError, "X is torch.complex64", id="complex"),
    pytest.param(
        {"X": torch.ones(3, 5, device="meta")}, ValueError, "X is on meta, it must be on cpu", id="device"
    ),
    pytest.param({"S": torch.ones(3, 1).expand(3, 3)}, ValueError, "S is expanded", id="expanded S"),
    pytest.param({"S": torch.ones(3, 3).requires_grad_()}, ValueError, "S requires grad", id="grad of S"),
    pytest.param({"X": torch.ones(3, 5).requires_grad_()}, ValueError, "X requires grad", id="grad of X"),
]


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED)
def test_rejects(change, exception, message):
    given_arguments = {"S": torch.ones(3, 3), "X": torch.ones(3, 5), **SCALARS, "side": "left"} | change
    with pytest.raises(exception, match="gram_ema_: .*" + message):
        kpop_kernels.gram_ema_(**given_arguments)


def test_rejects_shared_memory():
    S = torch.ones(3, 3)
    with pytest.raises(ValueError, match="S is written and shares memory with X"):
        kpop_kernels.gram_ema_(S, S.T, **SCALARS, side="left")


def test_accepts_grad_under_no_grad():
    X = torch.ones(3, 5, requires_grad=True)
    with torch.no_grad():
        S = kpop_kernels.gram_ema_(torch.zeros(3, 3), X, beta=0.0, alpha=1.0, side="left")
    assert torch.equal(S, torch.full((3, 3), 5.0))


@pytest.mark.parametrize("variant", VARIANTS)
def test_deterministic(generator, variant):
    tensors = arguments(generator, (2,), 65, 129, "right")
    op = Launcher("gram_ema_", variant)
    first, second = (outcome(op, tensors, WRITTEN, **SCALARS, side="right") for _ in range(2))
    assert_same_bits(first, second)


@pytest.mark.parametrize("variant", VARIANTS)
def test_reads_only_the_lower_triangle(generator, variant):
    tensors = arguments(generator, (), 65, 7, "left")
    op = Launcher("gram_ema_", variant)
    garbage = tensors["S"].tril() + torch.full((65, 65), torch.nan).triu(1)
    assert_same_bits(
        outcome(op, tensors, WRITTEN, **SCALARS, side="left"),
        outcome(op, tensors | {"S": garbage}, WRITTEN, **SCALARS, side="left"),
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_bad_values_poison_only_their_matrix(generator, variant, bad):
    tensors = arguments(generator, (3,), 33, 17, "left")
    op = Launcher("gram_ema_", variant)
    (clean,) = outcome(op, tensors, WRITTEN, **SCALARS, side="left")
    tensors["X"][1, 5, 3] = bad
    (poisoned,) = outcome(op, tensors, WRITTEN, **SCALARS, side="left")
    assert not poisoned[1].isfinite().all()
    assert_same_bits([poisoned[[0, 2]]], [clean[[0, 2]]])


def test_instruction_sets_that_fuse_multiply_adds_agree(generator):
    tensors = arguments(generator, (2,), 65, 33, "left")
    first, second = (
        outcome(Launcher("gram_ema_", isa), tensors, WRITTEN, **SCALARS, side="left") for isa in FUSING
    )
    assert_same_bits(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opcheck(generator, dtype):
    tensors = arguments(generator, (2,), 5, 3, "left", dtype)
    torch.library.opcheck(
        torch.ops.kpop.gram_ema_.default, tuple(tensors.values()), {**SCALARS, "side": "left"}
    )


def test_compiles(generator):
    tensors = arguments(generator, (2,), 5, 3, "left")
    assert_compiles(kpop_kernels.gram_ema_, tensors, WRITTEN, **SCALARS, side="left")


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    batch=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    n=st.integers(0, 40),
    k=st.integers(0, 20),
    side=st.sampled_from(["left", "right"]),
    layouts=st.tuples(*[st.sampled_from(["contiguous", *LAYOUTS])] * 2),
    variant=st.sampled_from(["composite", "cpu"]),
)
def test_any_shape_and_strides(batch, n, k, side, layouts, variant):
    tensors = arguments(torch.Generator().manual_seed(n), batch, n, k, side)
    check(
        variant,
        {name: strided(t, layout) for (name, t), layout in zip(tensors.items(), layouts, strict=True)},
        side,
    )
