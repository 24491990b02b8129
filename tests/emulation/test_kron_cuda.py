"""Rotations and Adam in a rotated basis of the CUDA backend, emulated, against the oracle."""

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS
from kpop_kernels.backends import cuda as package
from kpop_kernels.backends.cuda import native
from python_ref.kron import adam, rotate
from tests.emulation import cuda_emulator
from tests.emulation.cuda_backend import emulated, operator
from tests.emulation.tools import require_tool
from tests.errors import assert_accurate, unit_roundoff
from tests.guards import Guarded
from tests.matrices import factors, normal
from tests.ops.grids import BOTH
from tests.ops.launch import LAYOUTS, assert_same_bits, outcome, strided
from tests.ops.test_kron_adam import SCALARS, WRITTEN, bound

ORDERS = cuda_emulator.ORDERS
SHAPES = [
    # batch, m, n, kinds of the left and right factor
    ((), 1, 1, BOTH),
    ((), 1, 37, BOTH),
    ((), 37, 1, BOTH),
    ((), 3, 5, BOTH),
    ((), 32, 32, BOTH),
    ((), 63, 64, BOTH),
    ((), 33, 17, ("shared", "none")),
    ((), 17, 33, ("none", "shared")),
    ((), 31, 30, ("none", "none")),
    ((3,), 9, 17, ("each", "shared")),
    ((2, 2), 5, 7, ("none", "each")),
    ((0,), 5, 7, BOTH),
    ((), 0, 7, BOTH),
    # The long side in several thread blocks, rows that begin everywhere.
    ((), 17, 301, ("shared", "none")),
    ((), 130, 9, ("none", "shared")),
    ((2,), 5, 66, ("each", "none")),
    ((2,), 65, 3, ("none", "each")),
    ((), 1, 129, ("shared", "none")),
    ((), 70, 67, ("none", "none")),
]


@pytest.fixture(autouse=True)
def compiler(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(7)


def arguments(generator, batch, m, n, kinds, dtype=torch.float32):
    exp_avg, spread = (normal(generator, *batch, m, n, dtype=torch.float32) for _ in range(2))
    Q_L, Q_R = factors(generator, batch, (m, n), kinds, torch.float32)
    param, grad = (normal(generator, *batch, m, n, dtype=dtype) for _ in range(2))
    values = (param, grad, exp_avg, spread.square() + 0.1, Q_L, Q_R)
    return dict(zip(OPERATORS["kron_adam_"].parameters, values, strict=False))


def assert_right(tensors, ours, **scalars):
    scalars = SCALARS | scalars
    composite = {name: None if t is None else t.clone() for name, t in tensors.items()}
    backends.get("composite").kron_adam_(*composite.values(), **scalars)
    for name, result, exact in zip(WRITTEN, ours, adam(*tensors.values(), **scalars), strict=True):
        assert_accurate(result, composite[name], exact, bound=bound(result.dtype), name=name)


def check(tensors, **scalars):
    scalars = SCALARS | scalars
    assert_right(tensors, outcome(operator("kron_adam_"), tensors, WRITTEN, **scalars), **scalars)


@pytest.mark.parametrize("order", ORDERS)
def test_a_list_of_mixed_shapes_and_dtypes_is_one_launch(generator, order):
    """Each with its own step and found_inf; the one that found an infinity is left alone."""
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    items = [arguments(generator, *shape, dtypes[i % 3]) for i, shape in enumerate(SHAPES)]
    steps = [torch.tensor(3 + i) for i in range(len(items))]
    found = [None if i % 2 else torch.tensor(float(i == 4)) for i in range(len(items))]
    copies = [{name: Guarded(t) for name, t in item.items() if t is not None} for item in items]
    lists = [[copy[name].tensor if name in copy else None for copy in copies] for name in items[0]]
    shared = {name: value for name, value in SCALARS.items() if name != "step"}
    with emulated(order, only="kron_adam.cu") as cuda:
        operator("kron_adam_foreach_")(*lists, step=steps, found_inf=found, **shared)
        assert cuda.launches() == ["kpop::kron_adam<64>"]
    for item, copy, step, stop in zip(items, copies, steps, found, strict=True):
        for name, guarded in copy.items():
            if name in WRITTEN and not stop:
                guarded.assert_intact(name)
            else:
                guarded.assert_unchanged(name)
        if not stop:
            assert_right(item, [copy[name].tensor for name in WRITTEN], step=step.item())


@pytest.mark.parametrize(
    "change",
    [
        {"maximize": True},
        {"weight_decay": 0.0},
        {"beta1": 0.0, "step": 1},
        {"step": 10**6},
        {"eps": 0.5},
        {"lr": 0.0},
        {"clip": 0.1},
        {"exp_avg_basis": "original"},
        {"exp_avg_basis": "original", "maximize": True, "clip": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("kinds", [BOTH, ("shared", "none"), ("none", "none")])
def test_every_scalar(generator, kinds, change):
    with emulated(only="kron_adam.cu"):
        check(arguments(generator, (), 9, 20, kinds), **change)


def test_moments_without_memory(generator):
    """They are products and nothing else, which the second moment squares: the bounds of a fresh parameter's."""
    tensors, scalars = (
        arguments(generator, (), 33, 20, BOTH),
        SCALARS | {"beta1": 0.0, "beta2": 0.0, "step": 1},
    )
    with emulated(only="kron_adam.cu"):
        _, *moments = outcome(operator("kron_adam_"), tensors, WRITTEN, **scalars)
    composite = {name: t.clone() for name, t in tensors.items()}
    backends.get("composite").kron_adam_(*composite.values(), **scalars)
    _, *exact = adam(*tensors.values(), **scalars)
    for name, result, oracle, limit in zip(WRITTEN[1:], moments, exact, (5e-7, 1e-6), strict=True):
        assert_accurate(result, composite[name], oracle, bound=limit, name=name)


def test_the_longest_sides(generator):
    with emulated("reversed", only="kron_adam.cu") as cuda:
        check(arguments(generator, (), 127, 66, BOTH))
        check(arguments(generator, (), 5, 128, BOTH))
        assert cuda.launches() == ["kpop::kron_adam<128>"] * 2


@pytest.mark.parametrize(
    ("m", "n", "kinds"), [(70, 200, ("shared", "none")), (200, 70, ("none", "shared"))], ids=str
)
@pytest.mark.parametrize("basis", ["rotated", "original"])
def test_a_long_side_without_a_basis_is_one_launch(generator, m, n, kinds, basis):
    with emulated("shuffled", seed=2, only="kron_adam.cu") as cuda:
        check(arguments(generator, (), m, n, kinds, torch.bfloat16), exp_avg_basis=basis)
        assert cuda.launches() == ["kpop::kron_adam<128>"]


def test_nan_poisons_its_matrix_only(generator):
    """Of a long side without a basis its own column, even where another thread block has the next."""
    tensors = arguments(generator, (2,), 9, 70, ("each", "none"))
    with emulated(only="kron_adam.cu"):
        clean = outcome(operator("kron_adam_"), tensors, WRITTEN, **SCALARS)
        tensors["grad"][1, 3, 40] = torch.nan
        poisoned = outcome(operator("kron_adam_"), tensors, WRITTEN, **SCALARS)
    for before, after in zip(clean, poisoned, strict=True):
        assert after[1, :, 40].isnan().all()
        after[1, :, 40] = before[1, :, 40]
        assert_same_bits([before], [after])


def test_what_is_served(monkeypatch):
    monkeypatch.setattr(package, "absent_because", lambda: None)
    monkeypatch.setattr(package, "DEVICES", ("cpu",))
    backend = backends.Backend("cuda")
    G = torch.zeros(128, 129)
    for bases, served in {(None, torch.eye(129)): False, (torch.eye(128), None): True}.items():
        assert backend.serves("kron_rotate", G, call=((G, *bases), {})) == served
    assert not backend.serves("kron_rotate", G)
    lists = [[G, G[:, 1:]] for _ in range(4)]
    bases = [[None, None], [None, torch.eye(128)]]
    assert backend.serves("kron_adam_foreach_", *lists[0], call=((*lists, *bases), {}))
    bases[1].reverse()
    assert not backend.serves("kron_adam_foreach_", *lists[0], call=((*lists, *bases), {}))
    message = r"kron_rotate: backend 'cuda' takes sides with a basis up to 128, not \(128, 129\)"
    with pytest.raises(ValueError, match=message):
        backend.kron_rotate(G, None, torch.eye(129))
    wide = torch.zeros(1, 1).expand(1, 2**24 + 1)
    with pytest.raises(ValueError, match="takes sides without a basis up to 16777216"):
        backend.kron_rotate(wide, None, None)


def test_strides_and_a_wide_gradient(generator):
    tensors = arguments(generator, (2,), 9, 19, ("each", "each"))
    with emulated(only="kron_adam.cu"):
        for layout in LAYOUTS:
            check({name: strided(tensor, layout) for name, tensor in tensors.items()})
        check(tensors | {"grad": tensors["grad"].double()})


def test_bits_do_not_depend_on_batch_list_or_order(generator):
    tensors = arguments(generator, (2,), 20, 31, ("each", "shared"))
    other = arguments(generator, (), 64, 40, BOTH)
    one = {name: t[1] if name != "Q_R" else t for name, t in tensors.items()}
    shared = {name: value for name, value in SCALARS.items() if name != "step"}
    with emulated(only="kron_adam.cu"):
        alone = outcome(operator("kron_adam_"), one, WRITTEN, **SCALARS)
    lists = [
        [a if a is None else a.clone(), b.clone()]
        for a, b in zip(tensors.values(), other.values(), strict=True)
    ]
    with emulated("shuffled", seed=4, only="kron_adam.cu"):
        operator("kron_adam_foreach_")(*lists, step=[torch.tensor(7)] * 2, found_inf=[None, None], **shared)
    listed = dict(zip(tensors, (pair[0] for pair in lists), strict=True))
    assert_same_bits(alone, [listed[name][1] for name in WRITTEN])


def test_numbers_from_elsewhere_are_passed_by_value(generator, monkeypatch):
    elsewhere = lambda number, dtype, device: native.Number(number, dtype, torch.device("meta"))
    monkeypatch.setattr("kpop_kernels.backends.cuda.kron_adam.Number", elsewhere)
    tensors = arguments(generator, (), 9, 7, BOTH)
    with emulated(only="kron_adam.cu") as cuda:
        check(tensors)
        cuda.launches()
        unchanged = outcome(operator("kron_adam_"), tensors, WRITTEN, **SCALARS, found_inf=torch.tensor(1.0))
        assert cuda.launches() == []
    assert_same_bits(unchanged, [tensors[name] for name in WRITTEN])


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rotations(generator, dtype, inverse):
    with emulated("shuffled", seed=1, only="kron_rotate.cu"):
        for shape in SHAPES:
            tensors = arguments(generator, *shape, dtype)
            given = {name: tensors[name] for name in ("grad", "Q_L", "Q_R")}
            (result,) = outcome(operator("kron_rotate"), given, (), inverse=inverse)
            composite = backends.get("composite").kron_rotate(*given.values(), inverse=inverse)
            exact = rotate(*given.values(), inverse=inverse)
            limit = 4e-7 + (unit_roundoff(dtype) if dtype != torch.float32 else 0)
            assert_accurate(result, composite, exact, bound=limit)


def test_long_rotations_keep_the_norm_and_come_back(generator):
    G = normal(generator, 100, 70, dtype=torch.float32)
    factors_ = factors(generator, (), (100, 70), BOTH, torch.float32)
    with emulated(only="kron_rotate.cu") as cuda:
        rotated = operator("kron_rotate")(G, *factors_)
        back = operator("kron_rotate")(rotated, *factors_, inverse=True)
        assert cuda.launches() == ["kpop::kron_rotate<128>"] * 2
    torch.testing.assert_close(rotated.double().norm(), G.double().norm(), rtol=5e-7, atol=0)
    torch.testing.assert_close(back, G, rtol=0, atol=5e-6)
