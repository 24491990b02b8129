"""kron_rotate: Q_Lᵀ G Q_R, and back."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kpop_kernels
from python_ref.kron import rotate
from tests.errors import assert_accurate, relative_error, unit_roundoff
from tests.guards import Guarded
from tests.matrices import factors, normal
from tests.ops.grids import TWO_SIDED
from tests.ops.launch import CPU, LAYOUTS, Launcher, assert_compiles, assert_same_bits, outcome, strided

VARIANTS = ("composite", *CPU)
NARROW = (torch.float32, torch.bfloat16, torch.float16)
SERVED = [(variant, dtype) for variant in VARIANTS for dtype in NARROW] + [("composite", torch.float64)]


def arguments(generator, batch, m, n, kinds, dtype=torch.float32):
    G = normal(generator, *batch, m, n, dtype=dtype)
    Q_L, Q_R = factors(generator, batch, (m, n), kinds, dtype)
    return {"G": G, "Q_L": Q_L, "Q_R": Q_R}


def bound(dtype):
    """The accuracy that the docstring states, and the rounding of the result to a narrow dtype."""
    if dtype == torch.float64:
        return 5e-7 * 2.0**-29
    return 5e-7 + (unit_roundoff(dtype) if dtype != torch.float32 else 0)


def check(variant, tensors, inverse=False):
    (ours,) = outcome(Launcher("kron_rotate", variant), tensors, (), inverse=inverse)
    (composite,) = outcome(Launcher("kron_rotate", "composite"), tensors, (), inverse=inverse)
    assert_accurate(ours, composite, rotate(*tensors.values(), inverse=inverse), bound=bound(ours.dtype))


@pytest.mark.parametrize(("variant", "dtype"), SERVED)
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(("batch", "m", "n", "kinds"), TWO_SIDED)
def test_matches_reference(generator, variant, batch, m, n, kinds, inverse, dtype):
    check(variant, arguments(generator, batch, m, n, kinds, dtype), inverse)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("Q_dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_mixes_dtypes(generator, variant, Q_dtype):
    tensors = arguments(generator, (2,), 9, 7, ("each", "shared"), torch.bfloat16)
    tensors |= {name: tensors[name].to(Q_dtype) for name in ("Q_L", "Q_R")}
    check(variant, tensors)


@pytest.mark.parametrize("variant", VARIANTS)
def test_leaves_inputs_unchanged(generator, variant):
    tensors = arguments(generator, (2,), 9, 7, ("each", "shared"))
    before = [tensor.clone() for tensor in tensors.values()]
    result = Launcher("kron_rotate", variant)(*tensors.values())
    assert_same_bits(tensors.values(), before)
    assert result.untyped_storage().data_ptr() != tensors["G"].untyped_storage().data_ptr()


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_factors_it_copies(generator, variant):
    G = normal(generator, 3, 4, dtype=torch.float32)
    result = Launcher("kron_rotate", variant)(G, None, None)
    assert_same_bits([result], [G])
    assert result.data_ptr() != G.data_ptr()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strided_one", ["G", "Q_L", "Q_R"])
def test_layouts(generator, variant, layout, strided_one):
    tensors = arguments(generator, (2,), 9, 7, ("each", "shared"))
    check(variant, tensors | {strided_one: strided(tensors[strided_one], layout)})


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", ["contiguous", *LAYOUTS])
def test_layouts_of_out(generator, variant, layout):
    tensors = arguments(generator, (2,), 9, 7, ("each", "shared"))
    op = Launcher("kron_rotate", variant)
    out = Guarded(strided(torch.zeros(2, 9, 7), layout))
    assert op(*tensors.values(), out=out.tensor) is out.tensor
    out.assert_intact("out")
    assert_same_bits([out.tensor], [op(*tensors.values())])


@pytest.mark.parametrize("variant", VARIANTS)
def test_expanded_input(generator, variant):
    tensors = arguments(generator, (3,), 9, 7, ("each", "shared"))
    check(variant, tensors | {"G": tensors["G"][0].expand(3, 9, 7)})
    check(variant, tensors | {"Q_L": tensors["Q_L"][0].expand(3, 9, 9)})


EYE = torch.eye(3)
REJECTED = [
    pytest.param(
        {"Q_L": torch.eye(4)}, ValueError, r"Q_L has shape \(4, 4\), it must be \(2, 2\)", id="left size"
    ),
    pytest.param(
        {"Q_R": torch.ones(3, 2)}, ValueError, r"Q_R has shape \(3, 2\), it must be \(3, 3\)", id="square"
    ),
    pytest.param(
        {"G": torch.ones(5, 2, 3), "Q_R": torch.ones(4, 3, 3)},
        ValueError,
        r"Q_R has shape \(4, 3, 3\), it must be \(3, 3\) or \(5, 3, 3\)",
        id="batch",
    ),
    pytest.param(
        {"G": torch.ones(3)}, ValueError, r"G has shape \(3,\), it must be \(\.\.\., rows", id="vector"
    ),
    pytest.param(
        {"G": torch.ones(2, 3).long()}, TypeError, "G is torch.int64, it must be float32", id="integers"
    ),
    pytest.param({"Q_R": EYE * 1j}, TypeError, "Q_R is torch.complex64", id="complex"),
    pytest.param({"Q_R": EYE.to("meta")}, ValueError, "Q_R is on meta, it must be on cpu", id="device"),
    pytest.param({"G": torch.ones(2, 3).requires_grad_()}, ValueError, "G requires grad", id="grad"),
    pytest.param(
        {"out": torch.ones(3, 2)}, ValueError, r"out is \(3, 2\) .* must be \(2, 3\)", id="shape of out"
    ),
    pytest.param(
        {"out": torch.ones(2, 3).double()}, ValueError, "out is .* torch.float64", id="dtype of out"
    ),
    pytest.param(
        {"out": torch.ones(2, 3, device="meta")}, ValueError, "out is .* on meta", id="device of out"
    ),
    pytest.param({"out": torch.ones(2, 1).expand(2, 3)}, ValueError, "out is expanded", id="expanded out"),
]


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED)
def test_rejects(change, exception, message):
    given_arguments = {"G": torch.ones(2, 3), "Q_L": None, "Q_R": EYE} | change
    with pytest.raises(exception, match="kron_rotate: .*" + message):
        kpop_kernels.kron_rotate(**given_arguments)


def test_rejects_shared_memory():
    G = torch.ones(3, 3)
    for name, arguments_ in {"G": (G, None, EYE), "Q_R": (EYE, None, G), "Q_L": (EYE, G, None)}.items():
        with pytest.raises(ValueError, match=f"out is written and shares memory with {name}"):
            kpop_kernels.kron_rotate(*arguments_, out=G.T)


@pytest.mark.parametrize("variant", VARIANTS)
def test_deterministic(generator, variant):
    tensors = arguments(generator, (2,), 65, 63, ("each", "shared"))
    op = Launcher("kron_rotate", variant)
    assert_same_bits(outcome(op, tensors, ()), outcome(op, tensors, ()))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("m", "n"), [(1, 5), (33, 17), (257, 257), (1, 257)])
def test_keeps_the_norm_and_comes_back(generator, variant, m, n):
    G, Q_L, Q_R = arguments(generator, (), m, n, ("shared", "shared")).values()
    op = Launcher("kron_rotate", variant)
    rotated = op(G, Q_L, Q_R)
    norm = G.double().norm()
    assert abs(rotated.double().norm() - norm) <= 1e-7 * norm
    assert relative_error(op(rotated, Q_L, Q_R, inverse=True), G.double()) <= 8e-7


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_bad_values_poison_only_their_matrix(generator, variant, bad):
    tensors = arguments(generator, (3,), 9, 7, ("each", "shared"))
    op = Launcher("kron_rotate", variant)
    (clean,) = outcome(op, tensors, ())
    tensors["G"][1, 2, 3] = bad
    (poisoned,) = outcome(op, tensors, ())
    assert not poisoned[1].isfinite().any()
    assert_same_bits([poisoned[[0, 2]]], [clean[[0, 2]]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kinds", [("each", "shared"), ("none", "shared")])
def test_opcheck(generator, kinds, dtype):
    tensors = tuple(arguments(generator, (2,), 5, 3, kinds, dtype).values())
    torch.library.opcheck(torch.ops.kpop.kron_rotate.default, tensors, {"inverse": True})
    torch.library.opcheck(torch.ops.kpop.kron_rotate.out, tensors, {"out": torch.zeros(2, 5, 3, dtype=dtype)})


def test_compiles(generator):
    tensors = arguments(generator, (2,), 5, 3, ("each", "shared"))
    assert_compiles(kpop_kernels.kron_rotate, tensors, ())
    assert_compiles(
        lambda G, Q_L, Q_R, out: kpop_kernels.kron_rotate(G, Q_L, Q_R, out=out),
        tensors | {"out": torch.zeros(2, 5, 3)},
        ("out",),
    )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    batch=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    sizes=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    kinds=st.tuples(*[st.sampled_from(["none", "shared", "each"])] * 2),
    layout=st.sampled_from(["contiguous", *LAYOUTS]),
    inverse=st.booleans(),
    variant=st.sampled_from(VARIANTS),
)
def test_any_shape_and_strides(batch, sizes, kinds, layout, inverse, variant):
    tensors = arguments(torch.Generator().manual_seed(sizes[0]), batch, *sizes, kinds)
    check(variant, {name: None if t is None else strided(t, layout) for name, t in tensors.items()}, inverse)
