"""block_project and block_lift_ in Triton's interpreter: against the oracle, alone and in lists of any shapes."""

from collections import Counter
from functools import partial

import pytest
import torch
from triton.runtime.errors import InterpreterError

from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS
from kpop_kernels.tuning import SMALL_TILES, RotationConfig
from python_ref.block_project import lift, project
from tests.emulation.triton import operators
from tests.errors import assert_accurate, unit_roundoff
from tests.guards import Guarded
from tests.ops.launch import LAYOUTS, assert_same_bits, strided
from tests.ops.test_block_project import NAMES, SHAPES, arguments, lift_arguments

CONFIG = RotationConfig(block_m=16, block_n=32, block_k=16, num_warps=4, num_stages=2)
LIST = (((), 33, 48, 16), ((2,), 17, 33, 5), ((), 1, 7, 1), ((), 0, 7, 0), ((), 48, 64, 32), ((), 9, 9, 9))
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def run(op, items, *, module=None, config=CONFIG, **scalars):
    """Call an operator on a list between guard bands, and return each item's results, or what became of X."""
    operator = OPERATORS[f"{op.removesuffix('_')}_foreach{'_' * op.endswith('_')}"]
    module = module or operators.file_of(operator.name)
    function = operator.guarded(partial(getattr(module, operator.name), config=config))
    copies = [{name: None if t is None else Guarded(t) for name, t in item.items()} for item in items]
    lists = [[None if item[n] is None else item[n].tensor for item in copies] for n in items[0]]
    if op == "block_project":
        results = OPERATORS[op].results
        outs = [[Guarded(torch.full(r.shape, torch.nan)) for r in results(*item.values())] for item in items]
        out = tuple([guarded.tensor for guarded in column] for column in zip(*outs, strict=True))
        function(*lists, out=out)
        for guarded in (guarded for item in outs for guarded in item):
            guarded.assert_intact("out")
        outcome = [[guarded.tensor for guarded in item] for item in outs]
    else:
        function(*lists, **scalars | {"found_inf": scalars.get("found_inf", [None] * len(items))})
        outcome = [item["X"].tensor for item in copies]
    for item in copies:
        for name, copy in item.items():
            if copy is not None:
                copy.assert_intact(name) if name == "X" else copy.assert_unchanged(name)
    return outcome


def check_project(items, **how):
    """Parts are judged beside G: what remains of a complement may be small."""
    for tensors, ours in zip(items, run("block_project", items, **how), strict=True):
        G = tensors["G"].double()

        def error(result, expected, G=G):
            assert result.shape == expected.shape
            return ((result - expected).norm() / G.norm()).item() if G.numel() else 0.0

        composite = backends.get("composite").block_project(*tensors.values())
        oracle = project(*tensors.values())
        for name, mine, theirs, exact in zip(NAMES, ours, composite, oracle, strict=True):
            assert_accurate(mine, theirs, exact, bound=1e-6, name=name, error=error)


def check_lift(items, *, alpha=-0.3, beta=0.9, **how):
    factors = {"alpha": torch.tensor(alpha), "beta": torch.tensor(beta)}
    for tensors, ours in zip(items, run("block_lift_", items, **factors, **how), strict=True):
        X, *parts, U_L, U_R = tensors.values()
        composite = X.clone()
        backends.get("composite").block_lift_(composite, *parts, U_L, U_R, **factors)
        whole = backends.get("composite").block_project(X, U_L, U_R)
        parts = [torch.zeros_like(z) if p is None else p for p, z in zip(parts, whole, strict=True)]
        oracle = beta * X.double() + alpha * lift(*parts, U_L, U_R)
        assert_accurate(ours, composite, oracle, bound=1e-6 + unit_roundoff(ours.dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("batch", "m", "n", "r"), SHAPES)
def test_matches_the_oracle(interpreted, generator, batch, m, n, r, dtype):
    check_project([arguments(generator, batch, m, n, r, dtype)])
    check_lift([lift_arguments(generator, batch, m, n, r, dtype)])
    assert bool(interpreted) == (0 not in (*batch, m, n))


@pytest.mark.parametrize("missing", NAMES)
def test_missing_parts_are_zero(interpreted, generator, missing):
    tensors = lift_arguments(generator, (2,), 19, 37, 4)
    several = [tensors | {missing: None}, tensors | dict.fromkeys(set(NAMES) - {missing})]
    pairs = [tensors | dict.fromkeys((missing, other)) for other in NAMES if other != missing]
    check_lift([*several, *pairs, tensors | dict.fromkeys(NAMES)])
    assert interpreted


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(interpreted, generator, layout):
    items = [arguments(generator, (2,), 9, 7, 4) for _ in range(3)]
    for tensors, name in zip(items, items[0], strict=True):
        tensors[name] = strided(tensors[name], layout)
    check_project(items)
    items = [lift_arguments(generator, (2,), 9, 7, 4) for _ in range(7)]
    for tensors, name in zip(items, items[0], strict=True):
        tensors[name] = strided(tensors[name], layout)
    check_lift(items)
    assert interpreted


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_list_of_any_shapes_has_the_bits_of_its_items(interpreted, generator, dtype):
    items = [arguments(generator, *shape, dtype) for shape in LIST]
    check_project(items)
    for ours, item in zip(run("block_project", items), items, strict=True):
        assert_same_bits(ours, run("block_project", [item])[0])
    items = [lift_arguments(generator, *shape, dtype) for shape in LIST]
    check_lift(items)
    factors = {"alpha": torch.tensor(-0.3), "beta": torch.tensor(0.9)}
    for ours, item in zip(run("block_lift_", items, **factors), items, strict=True):
        assert_same_bits([ours], run("block_lift_", [item], **factors))
    assert interpreted


@pytest.mark.parametrize(("dtype", "launches"), [(torch.float32, 4), (torch.bfloat16, 6)], ids=str)
@pytest.mark.parametrize("copies", [1, 5])
def test_launches_do_not_grow_with_the_list(interpreted, generator, dtype, launches, copies):
    shapes = (((), 32, 48, 16), ((2,), 48, 16, 16)) * copies
    run("block_project", [arguments(generator, *shape, dtype) for shape in shapes])
    assert len(interpreted) == launches
    interpreted.clear()
    factors = {"alpha": torch.tensor(-0.3), "beta": torch.tensor(0.9)}
    run("block_lift_", [lift_arguments(generator, *shape, dtype) for shape in shapes], **factors)
    assert Counter(interpreted) == {"add_product_kernel": 1, "block_lift_kernel": 1}


@pytest.mark.parametrize("found", [1.0, float("nan"), float("inf")])
def test_an_item_whose_gradient_is_not_finite_stays(interpreted, generator, found):
    items = [lift_arguments(generator, *shape) for shape in LIST[:3]]
    factors = {"alpha": torch.tensor(-0.3), "beta": torch.tensor(0.9)}
    moved = run("block_lift_", items, **factors)
    found_inf = [None, torch.tensor(found), torch.tensor(0.0)]
    results = run("block_lift_", items, **factors, found_inf=found_inf)
    assert_same_bits(results, [moved[0], items[1]["X"], moved[2]])
    assert_same_bits(run("block_lift_", items[1:2], **factors, found_inf=found_inf[1:2]), [items[1]["X"]])
    assert interpreted


def test_bad_values_poison_only_their_matrix(interpreted, generator):
    tensors = arguments(generator, (3,), 9, 7, 4)
    (clean,) = run("block_project", [tensors])
    tensors["G"][1, 2, 3] = torch.nan
    (poisoned,) = run("block_project", [tensors])
    assert not poisoned[3][1].isfinite().all()
    assert_same_bits([t[[0, 2]] for t in poisoned], [t[[0, 2]] for t in clean])
    assert interpreted


def test_tiles_that_are_shipped(interpreted, generator):
    check_project([arguments(generator, (), 257, 96, 33)], config=SMALL_TILES[4])
    check_lift([lift_arguments(generator, (), 257, 96, 33)], config=SMALL_TILES[4])
    assert interpreted


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("inside) + weight * sums", "inside) - weight * sums"),
        ("_add(first, -1.0,", "_add(first, 1.0,"),
        ("_product(L, B, X, C)", "_product(L, B, C, C)"),
        ("_product(A, R, C, C, b_transposed=True)", "_product(A, R, C, A, b_transposed=True)"),
        ("        sums += load_as_float32(addend, inside)", "        sums = load_as_float32(addend, inside)"),
        ("* scalar_value(beta)", "* scalar_value(alpha)"),
        ("0, found_inf) != 0", "0, found_inf) == 0"),
        ("rest = C if B is None", "rest = None if B is None"),
    ],
)
def test_planted_bugs_are_found(interpreted, generator, tmp_path, old, new):
    module = operators.mutated("block_project_foreach", "block_project", tmp_path, old, new)
    with pytest.raises((AssertionError, InterpreterError)):
        check_project([arguments(generator, *shape) for shape in LIST], module=module)
        tensors = lift_arguments(generator, (), 33, 48, 16)
        check_lift([tensors, tensors | {"B": None}], module=module)
