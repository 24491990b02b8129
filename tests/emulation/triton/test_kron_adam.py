"""Adam in a rotated basis in Triton's interpreter against the oracle, in tiles so small that there are several."""

from functools import partial

import pytest
import torch
from triton.runtime.errors import InterpreterError

from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS
from kpop_kernels.tuning import RotationConfig
from python_ref.kron import adam
from tests.emulation.triton import operators
from tests.errors import assert_accurate, relative_error, unit_roundoff
from tests.matrices import factors, normal, reflection
from tests.ops.blocks import DTYPES
from tests.ops.grids import BOTH, SMALL_TWO_SIDED
from tests.ops.launch import LAYOUTS, assert_same_bits, strided

pytestmark = pytest.mark.usefixtures("interpreted")

CONFIG = RotationConfig(block_m=16, block_n=32, block_k=16, num_warps=4, num_stages=2)
FEW_TILES = RotationConfig(block_m=64, block_n=512, block_k=512, num_warps=8, num_stages=2)
WRITTEN = ("param", "exp_avg", "exp_avg_sq")
SCALARS = {"lr": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "step": 7}
SHAPES = (
    *SMALL_TWO_SIDED,
    ((), 65, 63, ("none", "none")),
    ((2,), 17, 33, ("none", "each")),
)


def arguments(batch, m, n, kinds, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + m * n)
    exp_avg, spread = (normal(generator, *batch, m, n, dtype=torch.float32) for _ in range(2))
    Q_L, Q_R = factors(generator, batch, (m, n), kinds, torch.float32)
    return {
        "param": normal(generator, *batch, m, n, dtype=dtype),
        "grad": normal(generator, *batch, m, n, dtype=dtype),
        "exp_avg": exp_avg,
        "exp_avg_sq": spread.square() + 0.1,
        "Q_L": Q_L,
        "Q_R": Q_R,
    }


def assert_right(tensors, ours, **scalars):
    scalars = SCALARS | scalars
    composite = {name: None if t is None else t.clone() for name, t in tensors.items()}
    backends.get("composite").kron_adam_(*composite.values(), **scalars)
    oracle = adam(*tensors.values(), **scalars)
    for name, result, exact in zip(WRITTEN, ours, oracle, strict=True):
        bound = 2e-7 + (unit_roundoff(result.dtype) if result.dtype != torch.float32 else 0)
        assert_accurate(result, composite[name], exact, bound=bound, name=name)


def check(tensors, *, module=None, config=CONFIG, **scalars):
    ours = operators.run("kron_adam_", tensors, module=module, config=config, **(SCALARS | scalars))
    assert_right(tensors, ours, **scalars)


@pytest.mark.parametrize(("batch", "m", "n", "kinds"), SHAPES)
def test_matches_the_oracle(batch, m, n, kinds):
    check(arguments(batch, m, n, kinds))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("batch", "m", "n"),
    [((), 1, 1), ((), 1, 37), ((), 37, 1), ((), 3, 5), ((2,), 63, 65), ((), 128, 128), ((), 257, 96)],
)
def test_matches_the_oracle_in_the_tiles_that_are_shipped(batch, m, n, dtype):
    check(arguments(batch, m, n, BOTH, dtype), config=None)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matches_the_oracle_on_a_long_side(dtype):
    generator = torch.Generator().manual_seed(3)
    tensors = arguments((), 64, 4096, ("none", "none"), dtype)
    Q_L, Q_R = (reflection(generator, n, torch.float32) for n in (64, 4096))
    check(tensors | {"Q_L": Q_L, "Q_R": Q_R}, config=FEW_TILES)


def test_is_adamw_where_the_bases_are_the_identity():
    """Float32 against torch's AdamW in float64; 20 steps of rounding."""
    tensors = arguments((), 17, 33, BOTH) | {"Q_L": torch.eye(17), "Q_R": torch.eye(33)}
    tensors |= {name: torch.zeros(17, 33) for name in ("exp_avg", "exp_avg_sq")}
    expected = tensors["param"].double().requires_grad_()
    adamw = torch.optim.AdamW([expected], lr=0.1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    generator = torch.Generator().manual_seed(4)
    for step in range(1, 21):
        tensors["grad"] = normal(generator, 17, 33, dtype=torch.float32)
        written = operators.run("kron_adam_", tensors, config=CONFIG, **(SCALARS | {"step": step}))
        tensors |= dict(zip(WRITTEN, written, strict=True))
        expected.grad = tensors["grad"].double()
        adamw.step()
    assert relative_error(tensors["param"], expected.detach()) < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kinds", [BOTH, ("none", "shared"), ("none", "none")])
def test_16_bits(kinds, dtype):
    check(arguments((), 17, 33, kinds, dtype))


@pytest.mark.parametrize(
    "change",
    [
        {"maximize": True},
        {"weight_decay": 0.0},
        {"beta1": 0.0, "beta2": 0.0, "step": 1},
        {"step": 10**6},
        {"eps": 0.5},
        {"lr": 0.0},
        {"clip": 0.1},
        {"clip": float("inf")},
        {"exp_avg_basis": "original"},
        {"exp_avg_basis": "original", "maximize": True, "clip": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("kinds", [BOTH, ("shared", "none"), ("none", "none")])
def test_every_scalar(kinds, change):
    check(arguments((), 9, 33, kinds), **change)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_mixed_dtypes(dtype):
    for kinds in BOTH, ("none", "shared"), ("none", "none"):
        tensors = arguments((), 17, 19, kinds)
        check(tensors | {"grad": tensors["grad"].to(dtype)})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_strides(layout):
    tensors = arguments((2,), 9, 19, ("each", "each"))
    check({name: strided(tensor, layout) for name, tensor in tensors.items()})


LAUNCHES = {
    BOTH: ["product_kernel", "adam_product_kernel", "product_kernel", "update_kernel"],
    ("shared", "none"): ["adam_product_kernel", "update_kernel"],
    ("none", "shared"): ["adam_product_kernel", "update_kernel"],
    ("none", "none"): ["adam_kernel"],
}


@pytest.mark.parametrize("kinds", LAUNCHES)
def test_no_launch_but_the_products(interpreted, kinds):
    check(arguments((3,), 17, 33, kinds))
    assert interpreted == ["adam_scalars_kernel", *LAUNCHES[kinds]]


def test_step_and_rate_on_the_host_are_passed_by_value(monkeypatch, interpreted):
    for file in ("adam_scalars", "step_scalars"):
        monkeypatch.setattr(operators.imported(file), "scalar_argument", lambda value, device: value.item())
    check(arguments((), 17, 33, BOTH))
    assert interpreted == LAUNCHES[BOTH]


@pytest.mark.parametrize("found", [1.0, float("nan")])
@pytest.mark.parametrize("kinds", LAUNCHES)
def test_found_inf_is_read_on_the_device(kinds, found):
    tensors = arguments((2,), 17, 33, kinds)
    ours = operators.run("kron_adam_", tensors, config=CONFIG, found_inf=torch.tensor(found), **SCALARS)
    assert_same_bits(ours, [tensors[name] for name in WRITTEN])


@pytest.mark.parametrize("kinds", [("each", "shared"), ("none", "none")])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_bad_values_poison_only_their_matrix(kinds, bad):
    tensors = arguments((3,), 5, 33, kinds)
    clean = operators.run("kron_adam_", tensors, config=CONFIG, **SCALARS)
    tensors["grad"][1, 2, 3] = bad
    poisoned = operators.run("kron_adam_", tensors, config=CONFIG, **SCALARS)
    assert not poisoned[0][1].isfinite().all()
    assert_same_bits([t[[0, 2]] for t in poisoned], [t[[0, 2]] for t in clean])


ITEMS = (
    ((), 1, 1, BOTH, torch.float32),
    ((), 33, 17, BOTH, torch.float32),
    ((3,), 5, 33, ("each", "shared"), torch.float32),
    ((), 16, 32, BOTH, torch.float32),
    ((), 16, 48, BOTH, torch.float32),
    ((), 17, 5, ("shared", "none"), torch.float32),
    ((), 16, 32, ("none", "shared"), torch.float32),
    ((), 3, 5, ("none", "none"), torch.float32),
    ((), 16, 64, ("none", "none"), torch.float32),
    ((), 0, 3, BOTH, torch.float32),
    ((), 33, 17, BOTH, torch.bfloat16),
    ((), 17, 33, BOTH, torch.bfloat16),
)


def run_list(items, **scalars):
    """Take the steps of a list; every item has its own number of the step."""
    scalars = SCALARS | scalars
    steps = [scalars["step"] + i for i in range(len(items))]
    columns = zip(*(tensors.values() for tensors in items), strict=True)
    lists = [[None if t is None else t.clone() for t in column] for column in columns]
    operator, launcher = OPERATORS["kron_adam_foreach_"], operators.file_of("kron_adam_foreach_")
    function = operator.guarded(partial(launcher.kron_adam_foreach_, config=CONFIG))
    found_inf = scalars.pop("found_inf", [None] * len(items))
    function(*lists, **scalars | {"step": [torch.tensor(s) for s in steps], "found_inf": found_inf})
    return [({"step": step}, ours) for step, *ours in zip(steps, lists[0], lists[2], lists[3], strict=True)]


def test_a_list_of_mixed_shapes_and_dtypes():
    items = [arguments(*item) for item in ITEMS]
    for tensors, (step, ours) in zip(items, run_list(items), strict=True):
        assert_right(tensors, ours, **step)


@pytest.mark.parametrize("basis", ["rotated", "original"])
def test_launches_of_a_list_do_not_grow_with_it(interpreted, basis):
    counts = []
    for copies in 1, 4:
        items = [arguments(*item, seed=seed) for seed in range(copies) for item in ITEMS[3:5]]
        interpreted.clear()
        run_list(items, exp_avg_basis=basis)
        counts.append(list(interpreted))
    assert counts[0] == counts[1]
    assert len(counts[0]) == {"rotated": 5, "original": 8}[basis]


def test_found_inf_of_a_list_holds_for_its_item():
    items = [arguments(*item) for item in ITEMS[:9]]
    flags = [None, *(torch.tensor(float(i % 2)) for i in range(1, 9))]
    for i, (tensors, (step, ours)) in enumerate(zip(items, run_list(items, found_inf=flags), strict=True)):
        if i % 2:
            assert_same_bits(ours, [tensors[name] for name in WRITTEN])
        else:
            assert_right(tensors, ours, **step)


BUGS = [
    ("kron_adam", "a_transposed=True)", "a_transposed=False)"),
    ("adam_product", "left if half == 0 else right", "left"),
    ("adam_product", "half * (BLOCK_N // 2)", "half * BLOCK_N"),
    ("weight_update", "right_transposed=True", "right_transposed=False"),
    ("kron_adam", "AdamSettings(beta1, beta2", "AdamSettings(beta2, beta1"),
    ("adam_tile", "        g = -g", "        g = g"),
    ("adam_tile", "sqrt_rn(v) + eps", "sqrt_rn(v + eps)"),
    ("adam_tile", "m * correction1", "m"),
    (
        "adam_tile",
        "store_rounded(exp_avg_sq_ptr + offsets, v, inside)",
        "store_rounded(exp_avg_sq_ptr + offsets, v)",
    ),
    ("weight_update", "!= 0:\n        return\n    offsets", "> 2:\n        return\n    offsets"),
    ("weight_update", "move(ptr, sums, inside,", "move(ptr, sums, offsets >= 0,"),
    ("weight_update", "FOUND_INF),\n        config=config", "DECAY),\n        config=config"),
]


@pytest.mark.parametrize(("file", "old", "new"), BUGS, ids=[bug[2] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, file, old, new):
    broken = operators.mutated("kron_adam_", file, tmp_path, old, new)
    with pytest.raises((AssertionError, InterpreterError)):
        for kinds in BOTH, ("shared", "none"), ("none", "none"):
            check(arguments((), 33, 35, kinds), module=broken, eps=0.1, maximize=True)
        tensors = arguments((), 5, 7, BOTH)
        ours = operators.run("kron_adam_", tensors, module=broken, found_inf=torch.ones(()), **SCALARS)
        assert_same_bits(ours, [tensors[name] for name in WRITTEN])
