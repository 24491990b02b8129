"""Whitening, its update and the factors of KL-Shampoo in Triton's interpreter against the oracle."""

from functools import partial

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS
from kpop_kernels.tuning import ProductConfig
from python_ref.whiten import kl_gram_ema, whiten, whiten_update
from tests.emulation.triton import operators
from tests.emulation.triton.test_kron_rotate import CONFIG, SHAPES
from tests.errors import assert_accurate, unit_roundoff
from tests.matrices import covariance, normal
from tests.ops.launch import LAYOUTS, assert_same_bits, strided

pytestmark = pytest.mark.usefixtures("interpreted")

SCALARS = {"lr": 0.1, "weight_decay": 0.2, "scale": 1.5}
SYMMETRIC = ProductConfig(block=16, block_k=16, num_warps=4, num_stages=2)


def arguments(batch, m, n, kinds, dtype=torch.float32):
    """Return G and factors that are not symmetric: a transposition would be seen."""
    generator = torch.Generator().manual_seed(m * n)
    shapes = {"shared": (), "each": batch}
    P_L, P_R = (
        None
        if kind == "none"
        else normal(generator, *shapes[kind], k, k, dtype=torch.float32) / max(k, 1) ** 0.5
        for k, kind in zip((m, n), kinds, strict=True)
    )
    return {"G": normal(generator, *batch, m, n, dtype=dtype), "P_L": P_L, "P_R": P_R}


def with_param(tensors, dtype=torch.float32):
    return {"param": normal(torch.Generator().manual_seed(5), *tensors["G"].shape, dtype=dtype), **tensors}


def bound(dtype):
    return 5e-7 + (unit_roundoff(dtype) if dtype != torch.float32 else 0)


def assert_right(tensors, ours, **scalars):
    scalars = SCALARS | scalars
    composite = {name: None if t is None else t.clone() for name, t in tensors.items()}
    backends.get("composite").whiten_update_(*composite.values(), **scalars)
    if scalars.pop("maximize", False):
        scalars["scale"] = -scalars["scale"]
    oracle = whiten_update(*tensors.values(), **scalars)
    assert_accurate(ours, composite["param"], oracle, bound=bound(ours.dtype))


def check_update(tensors, module=None, **scalars):
    scalars = SCALARS | scalars
    (ours,) = operators.run("whiten_update_", tensors, module=module, config=CONFIG, **scalars)
    assert_right(tensors, ours, **scalars)


@pytest.mark.parametrize(("batch", "m", "n", "kinds"), SHAPES)
def test_match_the_oracle(batch, m, n, kinds):
    tensors = arguments(batch, m, n, kinds)
    (ours,) = operators.run("whiten", tensors, config=CONFIG)
    composite = backends.get("composite").whiten(*tensors.values())
    assert_accurate(ours, composite, whiten(*tensors.values()), bound=5e-7)
    check_update(with_param(tensors))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kinds", [("shared", "shared"), ("none", "none")])
def test_16_bits(kinds, dtype):
    check_update(with_param(arguments((), 17, 33, kinds, dtype), dtype))
    check_update(with_param(arguments((), 17, 33, kinds, torch.float64), dtype))


@pytest.mark.parametrize("change", [{"maximize": True}, {"weight_decay": 0.0}, {"scale": -3.0}], ids=str)
def test_every_scalar(monkeypatch, change):
    for kinds in ("shared", "none"), ("none", "none"):
        check_update(with_param(arguments((), 5, 33, kinds)), **change)
    monkeypatch.setattr(operators.file_of("whiten"), "scalar_argument", lambda value, device: value.item())
    check_update(with_param(arguments((), 5, 33, ("shared", "none"))), **change)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_strides(layout):
    tensors = with_param(arguments((2,), 9, 19, ("each", "shared")))
    check_update({name: strided(tensor, layout) for name, tensor in tensors.items()})


def test_a_list_takes_as_many_launches_as_an_item(interpreted):
    for copies in 1, 3:
        items = [with_param(arguments((), 16, 32 * n, ("shared", "shared"))) for n in range(1, copies + 1)]
        lists = [[t.clone() for t in column] for column in zip(*(i.values() for i in items), strict=True)]
        interpreted.clear()
        operator, module = OPERATORS["whiten_update_foreach_"], operators.file_of("whiten_update_foreach_")
        scales = [1.0 + i for i in range(copies)]
        function = operator.guarded(partial(module.whiten_update_foreach_, config=CONFIG))
        function(*lists, **SCALARS | {"scale": scales, "found_inf": [None] * copies})
        assert interpreted == ["product_kernel", "update_kernel"]
        for tensors, ours, scale in zip(items, lists[0], scales, strict=True):
            assert_right(tensors, ours, scale=scale)


@pytest.mark.parametrize("kinds", [("shared", "shared"), ("none", "none")])
def test_found_inf_is_read_on_the_device(kinds):
    tensors = with_param(arguments((), 5, 7, kinds))
    ours = operators.run("whiten_update_", tensors, found_inf=torch.ones(()), **SCALARS)
    assert_same_bits(ours, [tensors["param"]])


@pytest.mark.parametrize("kinds", [("each", "shared"), ("none", "shared"), ("none", "none")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kl_factors(kinds, dtype):
    generator = torch.Generator().manual_seed(1)
    for m, n in ((33, 17), (1, 5), (16, 48)):
        G, P_a, P_b = arguments((2,), m, n, kinds, dtype).values()
        S_a, S_b = (covariance(generator, 2, k, k, dtype=dtype) for k in (m, n))
        tensors = {"S_a": S_a, "S_b": S_b, "G": G, "P_a": P_a, "P_b": P_b}
        module = operators.file_of("kl_gram_ema_")
        run = partial(module.kl_gram_ema_foreach_, symmetric=SYMMETRIC)
        holder = type("Module", (), {"kl_gram_ema_foreach_": staticmethod(run)})
        ours = operators.run("kl_gram_ema_", tensors, module=holder, config=CONFIG, beta=0.9, eps=1e-3)
        oracle = kl_gram_ema(*tensors.values(), beta=0.9, eps=1e-3)
        composite = S_a.clone(), S_b.clone()
        backends.get("composite").kl_gram_ema_(*composite, G, P_a, P_b, beta=0.9, eps=1e-3)
        for result, theirs, exact in zip(ours, composite, oracle, strict=True):
            assert_accurate(result, theirs, exact, bound=2 * bound(dtype))
            assert torch.equal(result, result.mT)


def test_kl_factors_of_a_list_are_those_of_its_items(interpreted):
    """Launches whiten on each side, and average what is stored by rows and by columns."""
    generator = torch.Generator().manual_seed(2)
    module, scalars = operators.file_of("kl_gram_ema_foreach_"), {"beta": 0.9, "eps": 1e-3}
    options = {"config": CONFIG, "symmetric": SYMMETRIC}
    for copies in 1, 3:
        kinds = [((), 33, 17, ("shared",) * 2), ((2,), 16, 48, ("each",) * 2), ((), 5, 7, ("none",) * 2)]
        items = [arguments(*kind).values() for kind in kinds * copies]
        S = [
            [
                covariance(generator, *G.shape[:-2], G.shape[side], G.shape[side], dtype=torch.float32)
                for G, *_ in items
            ]
            for side in (-2, -1)
        ]
        ours = [[s.clone() for s in side] for side in S]
        interpreted.clear()
        module.kl_gram_ema_foreach_(*ours, *map(list, zip(*items, strict=True)), **scalars, **options)
        # Tensors that are not aligned are multiplied apart from those that are.
        assert sorted(interpreted) == ["product_kernel"] * 4 + ["symmetric_product_kernel"] * 2
        for (G, P_a, P_b), S_a, S_b, *results in zip(items, *S, *ours, strict=True):
            alone = [[tensor] for tensor in (S_a, S_b, G, P_a, P_b)]
            module.kl_gram_ema_foreach_(*alone, **scalars, **options)
            assert_same_bits(results, [S_a, S_b])


BUGS = [
    ("weight_update", "sums, inside, decay, rate", "sums, inside, decay, 1.0"),
    ("weight_update", "x, inside, decay, rate", "x, inside, decay, 1.0"),
    ("whiten", "-factor if maximize else factor", "factor"),
    ("weight_update", "left_product(L, N, middle)", "left_product(L.mT, N, middle)"),
    ("whiten", "transposed=False", "transposed=True"),
]


@pytest.mark.parametrize(("file", "old", "new"), BUGS, ids=[bug[2] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, file, old, new):
    broken = operators.mutated("whiten_update_", file, tmp_path, old, new)
    with pytest.raises(AssertionError):
        for kinds in ("shared", "shared"), ("none", "none"):
            check_update(with_param(arguments((), 17, 33, kinds)), module=broken, maximize=True)
