"""kl_gram_ema_: both factors of KL-Shampoo, each fed with what the other has whitened."""

import pytest
import torch

import kpop_kernels
from kpop_kernels import backends
from python_ref.whiten import kl_gram_ema
from tests.errors import assert_accurate, unit_roundoff
from tests.matrices import covariance, normal
from tests.ops.grids import TWO_SIDED
from tests.ops.launch import CPU, LAYOUTS, Launcher, assert_compiles, assert_same_bits, outcome, strided

VARIANTS = ("composite", *CPU)
WRITTEN = ("S_a", "S_b")
SCALARS = {"beta": 0.9, "eps": 1e-3}
GRID = [case for case in TWO_SIDED if 0 not in case.values[1:3]]


def arguments(generator, batch, m, n, kinds, dtype=torch.float32):
    shapes = {"shared": (), "each": batch}
    P_a, P_b = (
        None if kind == "none" else covariance(generator, *shapes[kind], k, k, dtype=dtype)
        for k, kind in zip((m, n), kinds, strict=True)
    )
    S_a, S_b = (covariance(generator, *batch, k, k, dtype=dtype) for k in (m, n))
    return {"S_a": S_a, "S_b": S_b, "G": normal(generator, *batch, m, n, dtype=dtype), "P_a": P_a, "P_b": P_b}


def bound(dtype):
    if dtype == torch.float64:
        return 5e-7 * 2.0**-29
    return 5e-7 + (2 * unit_roundoff(dtype) if dtype != torch.float32 else 0)


def check(variant, tensors, **scalars):
    scalars = SCALARS | scalars
    ours, composite = (
        outcome(Launcher("kl_gram_ema_", v), tensors, WRITTEN, **scalars) for v in (variant, "composite")
    )
    oracle = kl_gram_ema(*tensors.values(), **scalars)
    for name, *results in zip(WRITTEN, ours, composite, oracle, strict=True):
        assert_accurate(*results, bound=bound(results[0].dtype), name=name)
        assert_same_bits([results[0]], [results[0].mT])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("batch", "m", "n", "kinds"), GRID)
def test_matches_reference(generator, variant, batch, m, n, kinds, dtype):
    check(variant, arguments(generator, batch, m, n, kinds, dtype))


@pytest.mark.parametrize(("batch", "m", "n", "kinds"), GRID)
def test_matches_reference_in_float64(generator, batch, m, n, kinds):
    check("composite", arguments(generator, batch, m, n, kinds, torch.float64))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("scalars", [{"beta": 0.0}, {"eps": 0.0}], ids=str)
def test_settings(generator, variant, scalars):
    check(variant, arguments(generator, (), 33, 17, ("shared", "shared")), **scalars)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("m", "n"), [(0, 3), (3, 0)])
def test_an_empty_gradient_decays_the_factors(variant, m, n):
    S = [torch.eye(m), torch.eye(n)]
    Launcher("kl_gram_ema_", variant)(*S, torch.ones(m, n), None, None, beta=0.5, eps=0.25)
    assert_same_bits(S, [0.75 * torch.eye(m), 0.75 * torch.eye(n)])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(generator, variant, layout):
    tensors = arguments(generator, (2,), 9, 7, ("each", "each"))
    for name in tensors:
        check(variant, tensors | {name: strided(tensors[name], layout)})


@pytest.mark.parametrize("variant", VARIANTS)
def test_bad_values_poison_only_their_matrix(generator, variant):
    tensors = arguments(generator, (3,), 9, 7, ("each", "shared"))
    clean = outcome(Launcher("kl_gram_ema_", variant), tensors, WRITTEN, **SCALARS)
    tensors["G"][1, 2, 3] = torch.nan
    poisoned = outcome(Launcher("kl_gram_ema_", variant), tensors, WRITTEN, **SCALARS)
    assert not any(S[1].isfinite().all() for S in poisoned)
    assert_same_bits([t[[0, 2]] for t in poisoned], [t[[0, 2]] for t in clean])


def test_public_functions_and_lists_of_mixed_shapes(generator):
    shapes = [((), 5, 3, ("shared", "none")), ((2,), 4, 7, ("each", "shared")), ((), 1, 1, ("none", "none"))]
    items = [arguments(generator, *shape) for shape in shapes]
    lists = {name: [item[name] for item in items] for name in items[0]}
    many = lists | {name: [S.clone() for S in lists[name]] for name in WRITTEN}
    with backends.trace() as counter:
        kpop_kernels.kl_gram_ema_foreach_(*many.values(), **SCALARS)
    assert counter == {
        ("kl_gram_ema_foreach_", backends.serving("kl_gram_ema_foreach_", *lists["G"]).name): 1
    }
    for i, item in enumerate(items):
        S_a, S_b = kpop_kernels.kl_gram_ema_(**item, **SCALARS)
        assert S_a is item["S_a"] and S_b is item["S_b"]
        assert_same_bits([S_a, S_b], [many[name][i] for name in WRITTEN])
    kpop_kernels.kl_gram_ema_foreach_([], [], [], [], [], **SCALARS)


REJECTED = {
    "S_a": ({"S_a": torch.eye(3)}, ValueError, r"S_a has shape \(3, 3\), it must be \(2, 2\) like G Gᵀ"),
    "S_b": ({"S_b": torch.eye(2)}, ValueError, r"S_b has shape \(2, 2\), it must be \(3, 3\) like GᵀG"),
    "dtypes": (
        {"S_b": torch.eye(3).double()},
        TypeError,
        "S_b is torch.float64, it must be torch.float32 like S_a",
    ),
    "P_a": ({"P_a": torch.eye(3)}, ValueError, r"P_a has shape \(3, 3\), it must be \(2, 2\)"),
    "beta": ({"beta": 1.0}, ValueError, "beta is 1.0"),
    "eps": ({"eps": -1.0}, ValueError, "eps is -1.0, it must not be negative"),
    "shared": (
        {"S_a": (shared := torch.eye(2)), "P_a": shared},
        ValueError,
        "S_a is written and shares memory",
    ),
}


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED.values(), ids=REJECTED)
def test_rejects(change, exception, message):
    accepted = {"S_a": torch.eye(2), "S_b": torch.eye(3), "G": torch.ones(2, 3), "P_a": None, "P_b": None}
    with pytest.raises(exception, match="kl_gram_ema_: " + message):
        kpop_kernels.kl_gram_ema_(**(accepted | {"beta": 0.9} | change))


def test_compile(generator):
    tensors = arguments(generator, (2,), 5, 3, ("each", "shared"))
    assert_compiles(kpop_kernels.kl_gram_ema_, tensors, WRITTEN, **SCALARS)
    torch.library.opcheck(torch.ops.kpop.kl_gram_ema_.default, tuple(tensors.values()), SCALARS)
