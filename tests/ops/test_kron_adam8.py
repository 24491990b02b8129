"""kron_adam8_: rotated Adam with 8-bit moments has the bits of rotation and 8-bit averages taken apart."""

import pytest
import torch

import kpop_kernels
from kpop_kernels import QuantizedDynamic8, QuantizedInt8, backends
from python_ref import quantize as oracle
from python_ref.kron import rotate
from tests.errors import relative_error, unit_roundoff
from tests.matrices import factors, normal
from tests.ops.blocks import assert_same
from tests.ops.launch import CPU, LAYOUTS, Launcher, assert_compiles, assert_same_bits, outcome, strided

VARIANTS = ("composite", *CPU)
STATE = ("exp_avg_codes", "exp_avg_scales", "exp_avg_zero_points", "exp_avg_sq_codes", "exp_avg_sq_absmax")
WRITTEN = ("param", *STATE)
SCALARS = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}
RANDOM = {"step": 7, "seed": 2**63, "stream": 3, "offset": 16}
CHANGES = (
    {"maximize": True},
    {"weight_decay": 0.0},
    {"step": 1},
    {"clip": 0.3},
    {"exp_avg_basis": "original"},
    {"exp_avg_basis": "original", "maximize": True},
    {"beta1": 0.95, "beta2": 0.95},
    {"offset": 2**35 - 8},
)
SHAPES = [
    pytest.param((), 1, 1, ("shared", "shared"), id="one number"),
    pytest.param((), 3, 5, ("shared", "shared"), id="less than a block"),
    pytest.param((), 63, 65, ("shared", "shared"), id="blocks across rows"),
    pytest.param((), 16, 256, ("shared", "shared"), id="a block a row"),
    pytest.param((), 64, 512, ("none", "shared"), id="right only"),
    pytest.param((), 65, 33, ("shared", "none"), id="left only"),
    pytest.param((), 40, 40, ("none", "none"), id="no factor"),
    pytest.param((3,), 33, 17, ("each", "shared"), id="blocks across matrices"),
    pytest.param((0,), 5, 7, ("each", "shared"), id="empty batch"),
]


def arguments(generator, batch, m, n, kinds, dtype=torch.float32, block_size=256):
    old = normal(generator, *batch, m, n).float()
    state = (
        *oracle.quantize_int8(old, block_size=block_size),
        *oracle.quantize_dynamic8(old.square() * 0.7 + 0.1, block_size=block_size),
    )
    Q_L, Q_R = factors(generator, batch, (m, n), kinds, torch.float32)
    param, grad = (normal(generator, *batch, m, n, dtype=dtype) for _ in range(2))
    return {"param": param, "grad": grad} | dict(zip(STATE, state, strict=True)) | {"Q_L": Q_L, "Q_R": Q_R}


def expected(rotation, tensors, *, basis="rotated", clip=None, maximize=False, block_size=256, **scalars):
    """Return the parameter in float64 and the blocks, from the backend's own rotation of the gradient."""
    bases = tensors["Q_L"], tensors["Q_R"]
    G = tensors["grad"].float() * (-1 if maximize else 1)
    rotated = rotation(G, *bases)
    blocks = oracle.Affine(*(tensors[name] for name in STATE[:3]))
    squares = oracle.Dynamic(*(tensors[name] for name in STATE[3:]))
    beta1, beta2, step = scalars["beta1"], scalars["beta2"], scalars["step"]
    random = {name: scalars[name] for name in RANDOM}
    source = G if basis == "original" else rotated
    m, exp_avg = oracle.ema_int8(blocks, source, beta=beta1, block_size=block_size, **random)
    v, exp_avg_sq = oracle.ema_sq_dynamic8(squares, rotated, beta=beta2, block_size=block_size)
    m = rotate(m.reshape(G.shape), *bases) if basis == "original" else m.double().reshape(G.shape)
    v = v.double().reshape(G.shape)
    limit = oracle.adam_bound(beta1, beta2) if clip is None else clip
    N = ((m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + scalars["eps"])).clamp(-limit, limit)
    lr, decay = scalars["lr"], scalars["weight_decay"]
    param = (1 - lr * decay) * tensors["param"].double() - lr * rotate(N, *bases, inverse=True)
    return param, (*exp_avg, *exp_avg_sq)


def check(variant, tensors, **changes):
    scalars = SCALARS | RANDOM | changes
    ours = outcome(Launcher("kron_adam8_", variant), tensors, WRITTEN, **scalars)
    assert_right(ours, Launcher("kron_rotate", variant), tensors, **scalars)


def assert_right(ours, rotation, tensors, *, exp_avg_basis="rotated", **scalars):
    """Require the blocks of the separate operators after a backend's rotation, and their parameter."""
    param, *state = ours
    exact, blocks = expected(rotation, tensors, basis=exp_avg_basis, **scalars)
    assert_same(state, blocks)
    bound = 1e-6 + (unit_roundoff(param.dtype) if param.dtype != torch.float32 else 0)
    assert relative_error(param, exact) <= bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("batch", "m", "n", "kinds"), SHAPES)
def test_bits_are_those_of_the_unfused_sequence(generator, variant, batch, m, n, kinds, dtype):
    check(variant, arguments(generator, batch, m, n, kinds, dtype))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "change",
    CHANGES,
    ids=str,
)
def test_every_scalar(generator, variant, change):
    check(variant, arguments(generator, (), 33, 65, ("shared", "shared")), **change)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block_size", [8, 264, 4096])
def test_block_sizes(generator, variant, block_size):
    tensors = arguments(generator, (), 33, 65, ("shared", "shared"), block_size=block_size)
    check(variant, tensors, block_size=block_size)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(generator, variant, layout):
    tensors = arguments(generator, (2,), 9, 47, ("each", "each"))
    for name in ("param", "grad", "exp_avg_codes", "exp_avg_sq_codes", "Q_L", "Q_R"):
        check(variant, tensors | {name: strided(tensors[name], layout)})


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_bases_it_is_adam8(generator, variant):
    tensors = arguments(generator, (), 40, 40, ("none", "none"))
    rotated = outcome(Launcher("kron_adam8_", variant), tensors, WRITTEN, **SCALARS, **RANDOM)
    plain = {name: tensors[name] for name in ("param", "grad", *STATE)}
    assert_same_bits(rotated, outcome(Launcher("adam8_", variant), plain, WRITTEN, **SCALARS, **RANDOM))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_found_inf_decides_whether_anything_changes(generator, variant, found):
    tensors = arguments(generator, (), 9, 47, ("shared", "shared"))
    run = Launcher("kron_adam8_", variant)
    decided = outcome(run, tensors, WRITTEN, found_inf=torch.tensor(found), **SCALARS, **RANDOM)
    untouched = [tensors[name] for name in WRITTEN]
    assert_same_bits(decided, untouched if found else outcome(run, tensors, WRITTEN, **SCALARS, **RANDOM))


def as_blocks(tensors):
    """Return a step's arguments as the public function takes them."""
    param, grad, *blocks, Q_L, Q_R = tensors.values()
    return param, grad, QuantizedInt8(*blocks[:3]), QuantizedDynamic8(*blocks[3:]), Q_L, Q_R


def test_public_functions_take_moments_in_blocks(generator):
    shapes = [((), 5, 3, ("shared", "none")), ((2,), 9, 47, ("each", "shared"))]
    items = [arguments(generator, *shape) for shape in shapes]
    copies = [{name: None if t is None else t.clone() for name, t in item.items()} for item in items]
    random = RANDOM | {"step": torch.tensor(7.0)}
    with backends.trace() as counter:
        for i, item in enumerate(items):
            assert (
                kpop_kernels.kron_adam_(*as_blocks(item), **SCALARS, **(random | {"stream": 3 + i}))
                is item["param"]
            )
        lists = zip(*map(as_blocks, copies), strict=True)
        kpop_kernels.kron_adam_foreach_(*map(list, lists), **SCALARS, **random)
    served = backends.serving("kron_adam8_", items[0]["param"]).name
    assert counter == {("kron_adam8_", served): 2, ("kron_adam8_foreach_", served): 1}
    for item, copy in zip(items, copies, strict=True):
        assert_same_bits([item[name] for name in WRITTEN], [copy[name] for name in WRITTEN])


def test_trajectories_stay_by_those_of_float32(generator):
    """40 steps on a quadratic: blocks of 8 bits end within a few percent of float32 moments."""
    target, (Q_L, Q_R) = normal(generator, 32, 48).float(), factors(generator, (), (32, 48), ("shared",) * 2)
    Q_L, Q_R = Q_L.float(), Q_R.float()
    W, exact = torch.zeros_like(target), torch.zeros_like(target)
    blocks = (
        kpop_kernels.quantize_int8(torch.zeros_like(W)),
        kpop_kernels.quantize_dynamic8(torch.zeros_like(W)),
    )
    moments = torch.zeros_like(W), torch.zeros_like(W)
    for step in range(1, 41):
        scalars = {"lr": 0.05, "beta1": 0.9, "beta2": 0.95, "step": step}
        kpop_kernels.kron_adam_(W, W - target, *blocks, Q_L, Q_R, seed=1, **scalars)
        kpop_kernels.kron_adam_(exact, exact - target, *moments, Q_L, Q_R, **scalars)
    ours, theirs = ((X - target).norm() / target.norm() for X in (W, exact))
    assert ours <= theirs + 0.03


REJECTED = {
    "codes": (
        {"exp_avg_codes": torch.ones(2, 3)},
        TypeError,
        "codes is torch.float32, it must be torch.uint8",
    ),
    "float64": (
        {"param": torch.ones(2, 3).double()},
        TypeError,
        "param is torch.float64, it must be float32, bfl",
    ),
    "Q_L": ({"Q_L": torch.eye(3)}, ValueError, r"Q_L has shape \(3, 3\), it must be \(2, 2\)"),
    "Q_L dtype": ({"Q_L": torch.eye(2).double()}, TypeError, "Q_L is torch.float64"),
    "step": ({"step": 0}, ValueError, "step is 0, it must be at least 1"),
    "clip": ({"clip": -1.0}, ValueError, "clip is -1.0"),
    "basis": ({"exp_avg_basis": "left"}, ValueError, "exp_avg_basis is 'left'"),
    "block size": ({"block_size": 7}, ValueError, "block_size is 7"),
}


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED.values(), ids=REJECTED)
def test_rejects(generator, change, exception, message):
    tensors = arguments(generator, (), 2, 3, ("none", "none"))
    changed = SCALARS | RANDOM | {name: value for name, value in change.items() if name not in tensors}
    tensors |= {name: value for name, value in change.items() if name in tensors}
    with pytest.raises(exception, match="kron_adam8?_: .*" + message):
        kpop_kernels.kron_adam_(*as_blocks(tensors), **changed)


def test_compile(generator):
    tensors = arguments(generator, (2,), 5, 47, ("each", "shared"))

    def step(param, grad, *rest, **scalars):
        tensors = dict(zip(("param", "grad", *STATE, "Q_L", "Q_R"), (param, grad, *rest), strict=True))
        return kpop_kernels.kron_adam_(*as_blocks(tensors), **scalars)

    assert_compiles(step, tensors, WRITTEN, **SCALARS, **(RANDOM | {"seed": 5}))
