"""kron_adam_: one Adam step in a rotated basis."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kpop_kernels
from python_ref.kron import adam
from tests.errors import assert_accurate, unit_roundoff
from tests.matrices import factors, normal
from tests.ops.grids import TWO_SIDED
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
from tests.vectors import golden

VARIANTS = ("composite", *CPU)
WRITTEN = ("param", "exp_avg", "exp_avg_sq")
SCALARS = {"lr": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "step": 7}


def arguments(generator, batch, m, n, kinds, dtype=torch.float32, *, moments=True):
    """Return a step's tensors, with moments of order one or, for a fresh parameter, zero."""
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    exp_avg, spread = (normal(generator, *batch, m, n, dtype=compute) for _ in range(2))
    exp_avg_sq = spread.square() + 0.1
    if not moments:
        exp_avg, exp_avg_sq = torch.zeros_like(exp_avg), torch.zeros_like(exp_avg_sq)
    Q_L, Q_R = factors(generator, batch, (m, n), kinds, compute)
    return {
        "param": normal(generator, *batch, m, n, dtype=dtype),
        "grad": normal(generator, *batch, m, n, dtype=dtype),
        "exp_avg": exp_avg,
        "exp_avg_sq": exp_avg_sq,
        "Q_L": Q_L,
        "Q_R": Q_R,
    }


def launch(variant, tensors, **scalars):
    """Run a step and return what it wrote; lr and step become tensors, as in the public function."""
    scalars = SCALARS | scalars
    scalars |= {name: torch.tensor(scalars[name], dtype=torch.float64) for name in ("lr", "step")}
    return outcome(Launcher("kron_adam_", variant), tensors, WRITTEN, **scalars)


def bound(dtype):
    """The accuracy that the docstring states, and the rounding of param to a narrow dtype."""
    if dtype == torch.float64:
        return 2e-7 * 2.0**-29
    return 2e-7 + (unit_roundoff(dtype) if dtype != torch.float32 else 0)


def check(variant, tensors, **scalars):
    ours, composite = launch(variant, tensors, **scalars), launch("composite", tensors, **scalars)
    oracle = adam(*tensors.values(), **(SCALARS | scalars))
    # Without memory nothing covers the error of the rotation in the moments, as in a first step.
    uncovered = {"exp_avg": 5e-7, "exp_avg_sq": 1e-6} if scalars.get("beta2") == 0 else {}
    for name, *results in zip(WRITTEN, ours, composite, oracle, strict=True):
        assert_accurate(*results, bound=uncovered.get(name, bound(results[0].dtype)), name=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("batch", "m", "n", "kinds"), TWO_SIDED)
def test_matches_reference(generator, variant, batch, m, n, kinds, dtype):
    check(variant, arguments(generator, batch, m, n, kinds, dtype))


@pytest.mark.parametrize(("batch", "m", "n", "kinds"), TWO_SIDED)
def test_matches_reference_in_float64(generator, batch, m, n, kinds):
    check("composite", arguments(generator, batch, m, n, kinds, torch.float64))


SETTINGS = [
    pytest.param({"maximize": True}, id="maximize"),
    pytest.param({"weight_decay": 0.0}, id="no decay"),
    pytest.param({"beta1": 0.0, "beta2": 0.0, "step": 1}, id="no memory"),
    pytest.param({"beta2": 0.9999, "step": 1}, id="long memory, first step"),
    pytest.param({"step": 1_000_000}, id="bias corrections gone"),
    pytest.param({"eps": 0.5}, id="large eps"),
    pytest.param({"lr": 0.0}, id="moments only"),
    pytest.param({"clip": 0.3}, id="clip"),
    pytest.param({"exp_avg_basis": "original"}, id="first moment in the original basis"),
    pytest.param({"exp_avg_basis": "original", "maximize": True, "clip": 0.5}, id="all of it"),
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("scalars", SETTINGS)
def test_settings(generator, variant, scalars):
    check(variant, arguments(generator, (), 33, 17, ("shared", "shared")), **scalars)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("grad_dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("param_dtype", [torch.float32, torch.bfloat16])
def test_mixes_dtypes(generator, variant, param_dtype, grad_dtype):
    tensors = arguments(generator, (), 33, 17, ("shared", "none"), param_dtype)
    check(variant, tensors | {"grad": tensors["grad"].to(grad_dtype)})


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("m", "n"), [(1, 257), (65, 63), (257, 257)])
def test_first_moments_of_a_fresh_parameter(generator, variant, m, n):
    tensors = arguments(generator, (), m, n, ("shared", "shared"), moments=False)
    _, exp_avg, exp_avg_sq = launch(variant, tensors, step=1)
    _, m1, v1 = launch("composite", tensors, step=1)
    oracle = adam(*tensors.values(), **(SCALARS | {"step": 1}))
    assert_accurate(exp_avg, m1, oracle.exp_avg, bound=5e-7, name="exp_avg")
    assert_accurate(exp_avg_sq, v1, oracle.exp_avg_sq, bound=1e-6, name="exp_avg_sq")


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_article_example(variant):
    example = golden()["kpop_article_2x2"]
    tensors = {name: torch.zeros(2, 2) for name in WRITTEN}
    tensors |= {name: torch.tensor(example[key]) for name, key in (("Q_L", "Q_R"), ("Q_R", "Q_C"))}
    tensors = {"param": tensors["param"], "grad": torch.tensor(example["G"]), **tensors}
    param, _, _ = launch(variant, tensors, beta2=0.999, weight_decay=0.0, step=1)
    torch.testing.assert_close(param, torch.tensor(example["first_adam_step_lr_0p1"]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("grad_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kinds", [("shared", "shared"), ("none", "none")])
def test_leaves_inputs_unchanged(generator, variant, kinds, grad_dtype):
    tensors = arguments(generator, (), 9, 7, kinds)
    tensors["grad"] = tensors["grad"].to(grad_dtype)
    read = [tensors[name] for name in ("grad", "Q_L", "Q_R") if tensors[name] is not None]
    before = [tensor.clone() for tensor in read]
    lr, step = torch.tensor(0.1), torch.tensor(3)
    Launcher("kron_adam_", variant)(*tensors.values(), **(SCALARS | {"lr": lr, "step": step}))
    assert_same_bits(read, before)
    assert lr == torch.tensor(0.1) and step == 3


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strided_one", ["param", "grad", "exp_avg", "exp_avg_sq", "Q_L", "Q_R"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=["one matrix", "batch"])
def test_layouts(generator, variant, layout, strided_one, batch):
    tensors = arguments(generator, batch, 9, 7, ("each", "each"))
    check(variant, tensors | {strided_one: strided(tensors[strided_one], layout)})


@pytest.mark.parametrize("variant", VARIANTS)
def test_expanded_input(generator, variant):
    for kinds in (("shared", "shared"), ("none", "none")):
        tensors = arguments(generator, (3,), 9, 7, kinds)
        check(variant, tensors | {"grad": tensors["grad"][0].expand(3, 9, 7)})
        check(variant, tensors | {"grad": torch.tensor(0.5).expand(3, 9, 7)})


ONES = torch.ones(2, 3)
REJECTED = [
    pytest.param(
        {"grad": torch.ones(3, 2)}, ValueError, r"grad has shape \(3, 2\), it must be \(2, 3\)", id="grad"
    ),
    pytest.param({"exp_avg": torch.ones(6)}, ValueError, r"exp_avg has shape \(6,\)", id="first moment"),
    pytest.param({"exp_avg_sq": torch.ones(2, 1)}, ValueError, "exp_avg_sq has shape", id="second moment"),
    pytest.param(
        {"Q_L": torch.eye(3)}, ValueError, r"Q_L has shape \(3, 3\), it must be \(2, 2\)", id="left"
    ),
    pytest.param(
        {"Q_R": torch.eye(2)}, ValueError, r"Q_R has shape \(2, 2\), it must be \(3, 3\)", id="right"
    ),
    pytest.param(
        dict.fromkeys(("param", "grad", "exp_avg", "exp_avg_sq"), torch.ones(3)),
        ValueError,
        r"has shape \(3,\), it must be \(\.\.\., rows, columns\)",
        id="vector",
    ),
    pytest.param({"grad": ONES.int()}, TypeError, "grad is torch.int32, it must be float32", id="integers"),
    pytest.param(
        {"exp_avg": ONES.bfloat16()},
        TypeError,
        "exp_avg is torch.bfloat16, it must be torch.float32",
        id="moments",
    ),
    pytest.param({"Q_R": torch.eye(3).double()}, TypeError, "Q_R is torch.float64, it must be", id="bases"),
    pytest.param({"grad": ONES.to("meta")}, ValueError, "grad is on meta, it must be on cpu", id="device"),
    pytest.param({"lr": torch.ones(1)}, ValueError, r"lr has shape \(1,\), it must be a number", id="lr"),
    pytest.param({"found_inf": torch.ones(1)}, ValueError, "found_inf has shape", id="found_inf"),
    pytest.param({"beta1": 1.0}, ValueError, "beta1 is 1.0, it must be at least 0 and below 1", id="beta1"),
    pytest.param({"beta2": -0.1}, ValueError, "beta2 is -0.1", id="beta2"),
    pytest.param({"eps": -1e-8}, ValueError, "eps is -1e-08, it must not be negative", id="eps"),
    pytest.param({"weight_decay": float("nan")}, ValueError, "weight_decay is nan", id="decay"),
    pytest.param({"clip": -1.0}, ValueError, "clip is -1.0, it must not be negative", id="clip"),
    pytest.param(
        {"exp_avg_basis": "left"},
        ValueError,
        "exp_avg_basis is 'left', it must be one of 'rotated', 'ori",
        id="basis",
    ),
    pytest.param(
        {"exp_avg": kpop_kernels.quantize_int8(ONES)},
        TypeError,
        "exp_avg is in 8-bit blocks and exp_avg_sq is not",
        id="one moment in blocks",
    ),
    pytest.param({"step": 0}, ValueError, "step is 0, it must be at least 1", id="step"),
    pytest.param({"param": ONES[:1].expand(2, 3)}, ValueError, "param is expanded", id="expanded param"),
    pytest.param(
        {"param": ONES.clone().requires_grad_()}, ValueError, "param requires grad", id="grad of param"
    ),
    pytest.param(
        {"grad": ONES.clone().requires_grad_()}, ValueError, "grad requires grad", id="grad of grad"
    ),
]


def accepted():
    tensors = {name: torch.ones(2, 3) for name in ("param", "grad", "exp_avg", "exp_avg_sq")}
    return {**tensors, "Q_L": None, "Q_R": None, **SCALARS}


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED)
def test_rejects(change, exception, message):
    with pytest.raises(exception, match="kron_adam_: .*" + message):
        kpop_kernels.kron_adam_(**(accepted() | change))


@pytest.mark.parametrize(
    ("written", "other"),
    [("param", "grad"), ("exp_avg", "grad"), ("exp_avg", "exp_avg_sq"), ("param", "Q_L")],
)
def test_rejects_shared_memory(written, other):
    square = {name: torch.ones(3, 3) for name in ("param", "grad", "exp_avg", "exp_avg_sq", "Q_L")}
    square[other] = square[written]
    with pytest.raises(ValueError, match=f"{written} is written and shares memory with {other}"):
        kpop_kernels.kron_adam_(**(accepted() | square))


@pytest.mark.parametrize("variant", VARIANTS)
def test_deterministic(generator, variant):
    tensors = arguments(generator, (2,), 65, 63, ("each", "shared"))
    assert_same_bits(launch(variant, tensors), launch(variant, tensors))


def test_instruction_sets_that_fuse_multiply_adds_agree(generator):
    """Up to the sizes that all of them leave to BLAS, or none."""
    tensors = arguments(generator, (2,), 33, 41, ("each", "shared"))
    first, second = (launch(isa, tensors) for isa in FUSING)
    assert_same_bits(first, second)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("kinds", [("each", "shared"), ("none", "none")])
def test_bad_values_poison_only_their_matrix(generator, variant, kinds, bad):
    tensors = arguments(generator, (3,), 9, 7, kinds)
    clean = launch(variant, tensors)
    tensors["grad"][1, 2, 3] = bad
    poisoned = launch(variant, tensors)
    assert not poisoned[0][1].isfinite().all()
    assert_same_bits([t[[0, 2]] for t in poisoned], [t[[0, 2]] for t in clean])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_found_inf_leaves_everything_untouched(generator, variant, dtype):
    tensors = arguments(generator, (2,), 9, 7, ("each", "shared"), dtype)
    tensors["grad"][0, 0, 0] = torch.inf
    untouched = launch(variant, tensors, found_inf=torch.tensor(1.0))
    assert_same_bits(untouched, [tensors[name] for name in WRITTEN])


@pytest.mark.parametrize("variant", VARIANTS)
def test_found_inf_of_zero_changes_nothing(generator, variant):
    tensors = arguments(generator, (2,), 9, 7, ("each", "shared"))
    assert_same_bits(launch(variant, tensors, found_inf=torch.tensor(0.0)), launch(variant, tensors))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kinds", [("shared", "shared"), ("none", "none")])
def test_zero_gradient_leaves_a_fresh_parameter_unchanged(generator, variant, kinds, dtype):
    tensors = arguments(generator, (), 33, 17, kinds, dtype, moments=False)
    tensors["grad"].zero_()
    written = launch(variant, tensors, weight_decay=0.0, step=1)
    assert_same_bits(written, [tensors[name] for name in WRITTEN])


@pytest.mark.parametrize("eye", [False, True], ids=["no bases", "identity bases"])
@pytest.mark.parametrize("exp_avg_basis", ["rotated", "original"])
def test_many_steps_are_adamw_in_float64(generator, eye, exp_avg_basis):
    W = normal(generator, 5, 3)
    bases = [torch.eye(n, dtype=torch.float64) if eye else None for n in (5, 3)]
    options = {"lr": 0.02, "weight_decay": 0.1, "exp_avg_basis": exp_avg_basis}
    weight = torch.nn.Parameter(W.clone())
    adamw = torch.optim.AdamW([weight], lr=0.02, betas=(0.9, 0.95), weight_decay=0.1)
    state = (torch.zeros_like(W), torch.zeros_like(W))
    for step in range(1, 51):
        weight.grad = normal(generator, 5, 3)
        adamw.step()
        kpop_kernels.kron_adam_(W, weight.grad, *state, *bases, step=step, **options)
    assert (W - weight).abs().max() <= 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kinds", [("each", "shared"), ("none", "none")])
def test_opcheck(generator, kinds, dtype):
    tensors = arguments(generator, (2,), 5, 3, kinds, dtype)
    scalars = SCALARS | {"lr": torch.tensor(0.1), "step": torch.tensor(7)}
    torch.library.opcheck(torch.ops.kpop.kron_adam_.default, tuple(tensors.values()), scalars)
    scalars["found_inf"] = torch.tensor(0.0)
    torch.library.opcheck(torch.ops.kpop.kron_adam_.default, tuple(tensors.values()), scalars)


def test_compiles(generator):
    tensors = arguments(generator, (2,), 5, 3, ("each", "shared"))
    assert_compiles(kpop_kernels.kron_adam_, tensors, WRITTEN, **SCALARS)


@pytest.mark.parametrize("wrap", [torch.tensor, lambda number: number], ids=["tensors", "numbers"])
def test_a_new_lr_or_step_does_not_recompile(generator, wrap):
    tensors = list(arguments(generator, (2,), 5, 3, ("each", "shared")).values())
    torch.compiler.reset()
    compiled = torch.compile(kpop_kernels.kron_adam_, fullgraph=True, backend="aot_eager")
    # The second value is when torch.compile finds out that a number changes.
    for step in (1, 2):
        compiled(*tensors, lr=wrap(0.1 / step), step=wrap(step))
    with torch._dynamo.config.patch(error_on_recompile=True):
        for step in range(3, 7):
            compiled(*tensors, lr=wrap(0.1 / step), step=wrap(step))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    batch=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    sizes=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    kinds=st.tuples(*[st.sampled_from(["none", "shared", "each"])] * 2),
    layouts=st.tuples(*[st.sampled_from(["contiguous", *LAYOUTS])] * 6),
    variant=st.sampled_from(["composite", "cpu"]),
)
def test_any_shape_and_strides(batch, sizes, kinds, layouts, variant):
    tensors = arguments(torch.Generator().manual_seed(sizes[0]), batch, *sizes, kinds)
    pairs = zip(tensors.items(), layouts, strict=True)
    check(variant, {name: None if t is None else strided(t, layout) for (name, t), layout in pairs})
