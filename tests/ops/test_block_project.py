"""block_project and block_lift_: four parts, and the matrix from them."""

import pytest
import torch

import kpop_kernels
from python_ref.block_project import lift, project
from tests.errors import assert_accurate, unit_roundoff
from tests.matrices import normal, orthogonal
from tests.ops.launch import CPU, LAYOUTS, Launcher, assert_compiles, assert_same_bits, outcome, strided

VARIANTS = ("composite", *CPU)
NAMES = ("main", "A", "B", "C")
SHAPES = [
    pytest.param((), 1, 1, 1, id="one number"),
    pytest.param((), 1, 9, 1, id="a row"),
    pytest.param((), 63, 65, 16, id="a rectangle"),
    pytest.param((), 257, 96, 33, id="several tiles"),
    pytest.param((), 33, 64, 33, id="a complete basis"),
    pytest.param((2, 3), 9, 7, 4, id="batch"),
    pytest.param((), 7, 9, 0, id="empty bases"),
    pytest.param((), 0, 9, 0, id="no rows"),
    pytest.param((0,), 7, 9, 3, id="empty batch"),
]


def arguments(generator, batch, m, n, r, dtype=torch.float32):
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    U_L, U_R = (orthogonal(generator, *batch, k, k)[..., :r].contiguous().to(compute) for k in (m, n))
    return {"G": normal(generator, *batch, m, n, dtype=dtype), "U_L": U_L, "U_R": U_R}


def lift_arguments(generator, batch, m, n, r, dtype=torch.float32):
    tensors = arguments(generator, batch, m, n, r, dtype)
    shapes = ((r, r), (m, r), (r, n), (m, n))
    parts = {
        name: normal(generator, *batch, *shape, dtype=tensors["U_L"].dtype)
        for name, shape in zip(NAMES, shapes, strict=True)
    }
    return {"X": tensors.pop("G"), **parts, **tensors}


def check_project(variant, tensors):
    """Parts are judged beside G: what remains of a complement may be small."""
    ours, composite = (outcome(Launcher("block_project", v), tensors, ()) for v in (variant, "composite"))
    G = tensors["G"].double()
    for name, mine, theirs, oracle in zip(NAMES, ours, composite, project(*tensors.values()), strict=True):

        def error(result, expected):
            assert result.shape == expected.shape
            return ((result - expected).norm() / G.norm()).item() if G.numel() else 0.0

        bound = 1e-6 if mine.dtype == torch.float32 else 1e-14
        assert_accurate(mine, theirs, oracle, bound=bound, name=name, error=error)


def check_lift(variant, tensors, *, alpha=-0.3, beta=0.9):
    scalars = {"alpha": alpha, "beta": beta}
    (ours,), (composite,) = (
        outcome(Launcher("block_lift_", v), tensors, ("X",), **scalars) for v in (variant, "composite")
    )
    X, *parts, U_L, U_R = tensors.values()
    shapes = [
        (U_L.shape[-1], U_R.shape[-1]),
        (X.shape[-2], U_R.shape[-1]),
        (U_L.shape[-1], X.shape[-1]),
        X.shape[-2:],
    ]
    zeros = [U_L.new_zeros(*X.shape[:-2], *shape) for shape in shapes]
    parts = [zero if part is None else part for part, zero in zip(parts, zeros, strict=True)]
    oracle = beta * X.double() + alpha * lift(*parts, U_L, U_R)
    bound = 1e-14 if ours.dtype == torch.float64 else 1e-6 + unit_roundoff(ours.dtype)
    assert_accurate(ours, composite, oracle, bound=bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("batch", "m", "n", "r"), SHAPES)
def test_match_reference(generator, variant, batch, m, n, r, dtype):
    check_project(variant, arguments(generator, batch, m, n, r, dtype))
    check_lift(variant, lift_arguments(generator, batch, m, n, r, dtype))


@pytest.mark.parametrize(("batch", "m", "n", "r"), SHAPES)
def test_match_reference_in_float64(generator, batch, m, n, r):
    check_project("composite", arguments(generator, batch, m, n, r, torch.float64))
    check_lift("composite", lift_arguments(generator, batch, m, n, r, torch.float64))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("missing", NAMES)
def test_missing_parts_are_zero(generator, variant, missing):
    tensors = lift_arguments(generator, (), 9, 7, 4)
    check_lift(variant, tensors | {missing: None})
    check_lift(variant, tensors | dict.fromkeys(set(NAMES) - {missing}))
    check_lift(variant, tensors | dict.fromkeys(NAMES))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("orthonormal", [False, True])
def test_the_lifts_add_up_whether_or_not_the_bases_are_orthonormal(generator, variant, orthonormal):
    tensors = arguments(generator, (2,), 33, 17, 6)
    if not orthonormal:
        tensors |= {
            "U_L": normal(generator, 2, 33, 6).float() / 6,
            "U_R": normal(generator, 2, 17, 6).float() / 6,
        }
    G, U_L, U_R = tensors.values()
    parts = Launcher("block_project", variant)(G, U_L, U_R)
    X = torch.zeros_like(G)
    Launcher("block_lift_", variant)(X, *parts, U_L, U_R, alpha=1.0, beta=1.0)
    assert (X - G).norm() <= 1e-6 * G.norm()


def test_public_functions_take_a_matrix_apart_and_add_it_to_another(generator):
    tensors = arguments(generator, (), 33, 17, 6, torch.float64)
    parts = kpop_kernels.block_project(**tensors)
    assert parts._fields == NAMES
    for part, basis in ((parts.A.mT, "U_L"), (parts.B, "U_R"), (parts.C.mT, "U_L"), (parts.C, "U_R")):
        assert (part @ tensors[basis]).abs().max() < 1e-14
    W = normal(generator, 33, 17)
    before = W.clone()
    assert kpop_kernels.block_lift_(W, *parts, tensors["U_L"], tensors["U_R"]) is W
    assert (W - before - tensors["G"]).norm() < 1e-13


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(generator, variant, layout):
    tensors = arguments(generator, (2,), 9, 7, 4)
    for name in tensors:
        check_project(variant, tensors | {name: strided(tensors[name], layout)})
    tensors = lift_arguments(generator, (2,), 9, 7, 4)
    for name in tensors:
        check_lift(variant, tensors | {name: strided(tensors[name], layout)})


@pytest.mark.parametrize("variant", VARIANTS)
def test_bad_values_poison_only_their_matrix(generator, variant):
    tensors = arguments(generator, (3,), 9, 7, 4)
    clean = outcome(Launcher("block_project", variant), tensors, ())
    tensors["G"][1, 2, 3] = torch.nan
    poisoned = outcome(Launcher("block_project", variant), tensors, ())
    assert not poisoned[3][1].isfinite().all()
    assert_same_bits([t[[0, 2]] for t in poisoned], [t[[0, 2]] for t in clean])


@pytest.mark.parametrize("variant", CPU)
@pytest.mark.parametrize(("batch", "m", "n", "r"), [((), 64, 63, 20), ((5,), 40, 17, 9)])
def test_bits_do_not_depend_on_the_number_of_threads(generator, variant, batch, m, n, r):
    cases = {
        "block_project": (arguments(generator, batch, m, n, r), (), {}),
        "block_lift_": (lift_arguments(generator, batch, m, n, r), ("X",), {"alpha": -0.3, "beta": 0.9}),
    }
    before = torch.get_num_threads()
    try:
        for op, (tensors, written, scalars) in cases.items():
            results = []
            for threads in (1, 3):
                torch.set_num_threads(threads)
                results.append(outcome(Launcher(op, variant), tensors, written, **scalars))
            assert_same_bits(*results)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("variant", VARIANTS)
def test_lists_are_their_items(generator, variant):
    shapes = [((), 33, 17, 6), ((2,), 5, 9, 3), ((), 1, 1, 1), ((), 0, 9, 0)]
    items = [arguments(generator, *shape) for shape in shapes]
    lists = [[item[name] for item in items] for name in items[0]]
    parts = Launcher("block_project_foreach", variant)(*lists)
    for i, item in enumerate(items):
        expected = Launcher("block_project", variant)(*item.values())
        assert_same_bits([column[i] for column in parts], expected)
    items = [lift_arguments(generator, *shape) for shape in shapes]
    items[1] |= {"A": None, "C": None}
    found, factors = [None, None, torch.tensor(1.0), torch.tensor(0.0)], {"alpha": -0.3, "beta": 0.9}
    lists = [[item[name] for item in items] for name in items[0]]
    lists[0] = [X.clone() for X in lists[0]]
    Launcher("block_lift_foreach_", variant)(*lists, **factors, found_inf=found)
    for item, result, inf in zip(items, lists[0], found, strict=True):
        Launcher("block_lift_", variant)(*item.values(), **factors, found_inf=inf)
        assert_same_bits([result], [item["X"]])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("found", [1.0, float("nan")])
def test_nothing_changes_where_the_gradient_is_not_finite(generator, variant, found):
    tensors = lift_arguments(generator, (), 9, 7, 4, torch.bfloat16)
    (X,) = outcome(
        Launcher("block_lift_", variant), tensors, ("X",), alpha=0.5, beta=0.5, found_inf=torch.tensor(found)
    )
    assert_same_bits([X], [tensors["X"]])


def test_public_functions_take_lists(generator):
    items = [arguments(generator, (), m, n, 4, torch.float64) for m, n in ((33, 17), (5, 9))]
    lists = [[item[name] for item in items] for name in items[0]]
    parts = kpop_kernels.block_project_foreach(*lists)
    Xs = [torch.zeros_like(G) for G in lists[0]]
    kpop_kernels.block_lift_foreach_(Xs, *zip(*parts, strict=True), *lists[1:])
    for item, X, each in zip(items, Xs, parts, strict=True):
        assert each._fields == NAMES
        assert_same_bits(each, kpop_kernels.block_project(**item))
        assert (X - item["G"]).norm() < 1e-13
    assert kpop_kernels.block_project_foreach([], [], []) == []
    kpop_kernels.block_lift_foreach_([], [], [], [], [], [], [])
    with pytest.raises(ValueError, match="block_lift_foreach_: item 1: block_lift_: U_L has shape"):
        kpop_kernels.block_lift_foreach_(Xs, *zip(*parts, strict=True), [lists[1][0]] * 2, lists[2])


ONES = {"main": torch.ones(1, 1), "A": torch.ones(2, 1), "B": torch.ones(1, 3), "C": torch.ones(2, 3)}
BASES = {"U_L": torch.ones(2, 1), "U_R": torch.ones(3, 1)}
REJECTED = {
    "U_L": ({"U_L": torch.ones(3, 1)}, ValueError, r"U_L has shape \(3, 1\), it must be \(2, 1\)"),
    "vector": ({"U_R": torch.ones(3)}, ValueError, r"U_R has shape \(3,\), it must be \(\.\.\., rows"),
    "dtype": (
        {"U_L": torch.ones(2, 1).double()},
        TypeError,
        "U_L is torch.float64, it must be torch.float32",
    ),
}
LIFT_REJECTED = {
    "part": ({"A": torch.ones(1, 2)}, ValueError, r"A has shape \(1, 2\), it must be \(2, 1\) for this X"),
    "part's dtype": ({"C": torch.ones(2, 3).double()}, TypeError, "C is torch.float64"),
    "alpha": ({"alpha": torch.ones(1)}, ValueError, r"alpha has shape \(1,\), it must be a number"),
    "shared": (
        {"C": (shared := torch.ones(2, 3)), "X": shared},
        ValueError,
        "X is written and shares memory with C",
    ),
}


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED.values(), ids=REJECTED)
def test_project_rejects(change, exception, message):
    with pytest.raises(exception, match="block_project: " + message):
        kpop_kernels.block_project(**({"G": torch.ones(2, 3)} | BASES | change))


@pytest.mark.parametrize(("change", "exception", "message"), LIFT_REJECTED.values(), ids=LIFT_REJECTED)
def test_lift_rejects(change, exception, message):
    with pytest.raises(exception, match="block_lift_: " + message):
        kpop_kernels.block_lift_(**({"X": torch.ones(2, 3)} | ONES | BASES | change))


def test_compile(generator):
    tensors = arguments(generator, (2,), 5, 4, 2)
    assert_compiles(kpop_kernels.block_project, tensors, ())
    torch.library.opcheck(torch.ops.kpop.block_project.default, tuple(tensors.values()))
    tensors = lift_arguments(generator, (2,), 5, 4, 2)
    assert_compiles(kpop_kernels.block_lift_, tensors, ("X",), alpha=0.5, beta=0.25)
    scalars = {"alpha": torch.tensor(0.5), "beta": torch.tensor(0.25)}
    torch.library.opcheck(torch.ops.kpop.block_lift_.default, tuple(tensors.values()), scalars)
