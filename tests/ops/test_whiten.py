"""whiten and whiten_update_: P_L G P_R, and the parameter moved along it."""

import pytest
import torch

import kpop_kernels
from kpop_kernels import backends
from python_ref.whiten import whiten, whiten_update
from tests.errors import assert_accurate, unit_roundoff
from tests.matrices import normal
from tests.ops.grids import TWO_SIDED
from tests.ops.launch import CPU, LAYOUTS, Launcher, assert_compiles, assert_same_bits, outcome, strided

VARIANTS = ("composite", *CPU)
SCALARS = {"lr": 0.1, "weight_decay": 0.2, "scale": 1.5}


def arguments(generator, batch, m, n, kinds, dtype=torch.float32):
    """Return G and factors of any kind, not symmetric ones: a transposition would be seen."""
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    shapes = {"shared": (), "each": batch}
    P_L, P_R = (
        None if kind == "none" else normal(generator, *shapes[kind], k, k, dtype=compute) / max(k, 1) ** 0.5
        for k, kind in zip((m, n), kinds, strict=True)
    )
    return {"G": normal(generator, *batch, m, n, dtype=dtype), "P_L": P_L, "P_R": P_R}


def bound(dtype):
    if dtype == torch.float64:
        return 5e-7 * 2.0**-29
    return 5e-7 + (unit_roundoff(dtype) if dtype != torch.float32 else 0)


def check(variant, tensors, out=None):
    (ours,), (composite,) = (outcome(Launcher("whiten", v), tensors, ()) for v in (variant, "composite"))
    assert_accurate(ours, composite, whiten(*tensors.values()), bound=bound(ours.dtype))


def check_update(variant, tensors, **scalars):
    scalars = SCALARS | scalars
    (ours,), (composite,) = (
        outcome(Launcher("whiten_update_", v), tensors, ("param",), **scalars) for v in (variant, "composite")
    )
    if scalars.pop("maximize", False):
        scalars["scale"] = -scalars["scale"]
    oracle = whiten_update(*tensors.values(), **scalars)
    assert_accurate(ours, composite, oracle, bound=bound(ours.dtype))


def with_param(generator, tensors, dtype=None):
    G = tensors["G"]
    return {"param": normal(generator, *G.shape, dtype=dtype or G.dtype), **tensors}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("batch", "m", "n", "kinds"), TWO_SIDED)
def test_match_reference(generator, variant, batch, m, n, kinds, dtype):
    tensors = arguments(generator, batch, m, n, kinds, dtype)
    check(variant, tensors)
    check_update(variant, with_param(generator, tensors))


@pytest.mark.parametrize(("batch", "m", "n", "kinds"), TWO_SIDED)
def test_match_reference_in_float64(generator, batch, m, n, kinds):
    tensors = arguments(generator, batch, m, n, kinds, torch.float64)
    check("composite", tensors)
    check_update("composite", with_param(generator, tensors))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "scalars", [{"maximize": True}, {"weight_decay": 0.0}, {"scale": 1.0}, {"lr": 0.0}], ids=str
)
def test_settings(generator, variant, scalars):
    check_update(
        variant, with_param(generator, arguments(generator, (), 33, 17, ("shared", "shared"))), **scalars
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "dtypes", [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)], ids=str
)
def test_param_and_momentum_may_differ_in_dtype(generator, variant, dtypes):
    tensors = arguments(generator, (), 33, 17, ("shared", "none"), dtypes[1])
    check_update(variant, with_param(generator, tensors, dtypes[0]))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(generator, variant, layout):
    tensors = with_param(generator, arguments(generator, (2,), 9, 7, ("each", "each")))
    for name in tensors:
        check_update(variant, tensors | {name: strided(tensors[name], layout)})


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_found_inf_decides_whether_anything_changes(generator, variant, found):
    tensors = with_param(generator, arguments(generator, (2,), 9, 7, ("each", "shared")))
    run = Launcher("whiten_update_", variant)
    decided = outcome(run, tensors, ("param",), found_inf=torch.tensor(found), **SCALARS)
    expected = [tensors["param"]] if found else outcome(run, tensors, ("param",), **SCALARS)
    assert_same_bits(decided, expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_direction_of_zero_changes_no_bit(generator, variant, dtype):
    tensors = with_param(generator, arguments(generator, (), 33, 17, ("shared", "shared"), dtype))
    tensors["G"].zero_()
    run = Launcher("whiten_update_", variant)
    assert_same_bits(outcome(run, tensors, ("param",), lr=0.1), [tensors["param"]])


@pytest.mark.parametrize("variant", VARIANTS)
def test_bad_values_poison_only_their_matrix(generator, variant):
    tensors = with_param(generator, arguments(generator, (3,), 9, 7, ("each", "shared")))
    run = Launcher("whiten_update_", variant)
    clean = outcome(run, tensors, ("param",), **SCALARS)
    tensors["G"][1, 2, 3] = torch.nan
    poisoned = outcome(run, tensors, ("param",), **SCALARS)
    assert not poisoned[0][1].isfinite().all()
    assert_same_bits([t[[0, 2]] for t in poisoned], [t[[0, 2]] for t in clean])


def test_public_functions_and_lists_of_mixed_shapes(generator):
    items = [
        with_param(generator, arguments(generator, *shape))
        for shape in [
            ((), 5, 3, ("shared", "none")),
            ((2,), 4, 7, ("each", "shared")),
            ((), 1, 1, ("none", "none")),
        ]
    ]
    lists = [[item[name] for item in items] for name in ("G", "P_L", "P_R")]
    one = [kpop_kernels.whiten(*(column[i] for column in lists)) for i in range(3)]
    with backends.trace() as counter:
        many = kpop_kernels.whiten_foreach(*lists)
        written = kpop_kernels.whiten_foreach(*lists, out=[torch.empty_like(G) for G in lists[0]])
    assert counter == {("whiten_foreach", backends.serving("whiten_foreach", *lists[0]).name): 2}
    assert_same_bits(one, many)
    assert_same_bits(one, written)

    params = [item["param"].clone() for item in items]
    kpop_kernels.whiten_update_foreach_(params, *lists, lr=0.1, scale=[1.0, 2.0, 3.0])
    for i, item in enumerate(items):
        W = item["param"].clone()
        assert (
            kpop_kernels.whiten_update_(W, *(c[i] for c in lists), lr=torch.tensor(0.1), scale=i + 1.0) is W
        )
        assert_same_bits([params[i]], [W])
    out = torch.empty_like(lists[0][0])
    assert kpop_kernels.whiten(*(column[0] for column in lists), out=out) is out
    assert kpop_kernels.whiten_foreach([], [], []) == []


REJECTED = {
    "P_L": ({"P_L": torch.eye(3)}, ValueError, r"P_L has shape \(3, 3\), it must be \(2, 2\)"),
    "G": ({"G": torch.ones(3, 2)}, ValueError, r"G has shape \(3, 2\), it must be \(2, 3\) like param"),
    "integers": ({"G": torch.ones(2, 3).int()}, TypeError, "G is torch.int32"),
    "lr": ({"lr": torch.ones(1)}, ValueError, "lr has shape"),
    "weight_decay": ({"weight_decay": -1.0}, ValueError, "weight_decay is -1.0, it must not be negative"),
    "shared": (
        {"param": (shared := torch.ones(2, 3)), "G": shared},
        ValueError,
        "param is written and shares",
    ),
}


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED.values(), ids=REJECTED)
def test_rejects(change, exception, message):
    accepted = {"param": torch.ones(2, 3), "G": torch.ones(2, 3), "P_L": None, "P_R": None, "lr": 0.1}
    with pytest.raises(exception, match="whiten_update_: " + message):
        kpop_kernels.whiten_update_(**(accepted | change))
    with pytest.raises(ValueError, match=r"whiten_foreach: item 1: whiten: P_R has shape"):
        kpop_kernels.whiten_foreach([torch.ones(2, 3)] * 2, [None] * 2, [None, torch.eye(2)])


def test_compile(generator):
    tensors = arguments(generator, (2,), 5, 3, ("each", "shared"))
    assert_compiles(kpop_kernels.whiten, tensors, ())
    torch.library.opcheck(torch.ops.kpop.whiten.default, tuple(tensors.values()))
    tensors = with_param(generator, tensors)
    assert_compiles(kpop_kernels.whiten_update_, tensors, ("param",), **SCALARS)
    scalars = SCALARS | {"lr": torch.tensor(0.1)}
    torch.library.opcheck(torch.ops.kpop.whiten_update_.default, tuple(tensors.values()), scalars)
