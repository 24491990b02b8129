import pytest
import torch

from python_ref import quantize as oracle
from tests.emulation.metal_backend import require_clang, run_guarded, serve_metal
from tests.emulation.metal_cases import in_every_mode
from tests.ops.blocks import BLOCK_SIZES, INF, LARGE, NAN, ODD_BLOCK_SIZES, SIZES, assert_same, values
from tests.ops.launch import LAYOUTS, Launcher, outcome, strided
from tests.ops.lists8 import with_tensors

AFFINE = ("codes", "scales", "zero_points")
DYNAMIC = ("codes", "absmax")
KEY = {"seed": 2**64 - 5, "step": 9, "stream": 5}


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


def old_moments(seed, *shape, block_size):
    """Return a first moment on the affine grid and a second one on the dynamic map."""
    old = values(seed, *shape)
    first = oracle.quantize_int8(old, block_size=block_size)
    return first, oracle.quantize_dynamic8(old.square() * 0.7, block_size=block_size)


def check(x, *, block_size=256, beta=0.9, seed=50, **key):
    """Compare both averages and their blocks with the oracle's, bit for bit."""
    m, v = old_moments(seed, *x.shape, block_size=block_size)
    key = KEY | key
    mean, blocks = oracle.ema_int8(m, x, beta=beta, block_size=block_size, **key)
    tensors = m._asdict() | {"x": x}
    results = run_guarded("ema_int8_", tensors, AFFINE, beta=beta, block_size=block_size, **key)
    assert_same(results, (mean, *blocks))
    mean, blocks = oracle.ema_sq_dynamic8(v, x, beta=beta, block_size=block_size)
    tensors = v._asdict() | {"x": x}
    results = run_guarded("ema_sq_dynamic8_", tensors, DYNAMIC, beta=beta, block_size=block_size)
    assert_same(results, (mean, *blocks))


def spoilt(x):
    """Return values with NaN, infinities, a square that overflows, zeros and halves' subnormals among them."""
    x = x.clone()
    if x.numel() > 1000:
        x[100], x[300], x[500], x[501] = NAN, INF, -INF, NAN
        x[600:608], x[700:708], x[800:808] = 0.0, -0.0, 2.0**-20
        x[900] = 1e25 if x.dtype != torch.float16 else 65504.0
    return x


@in_every_mode
def test_matches_reference(monkeypatch, mode, order, dtype, seed):
    compiler = serve_metal(monkeypatch, mode=mode, order=order)
    for i, block_size in enumerate((*BLOCK_SIZES, *ODD_BLOCK_SIZES)):
        x = spoilt(values(seed + i, 3001, dtype=dtype))
        check(x, block_size=block_size, beta=(0.9, 0.95, 0.999)[i % 3], seed=seed + 60, stream=i)
    for size in SIZES[:6]:
        check(values(seed, size, dtype=dtype), block_size=64)
    names = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
    assert set(compiler.launches) == {f"ema_int8_{names[dtype]}", f"ema_sq_dynamic8_{names[dtype]}"}


@pytest.mark.parametrize("beta", [0.0, 0.5, 1 - 2.0**-20])
def test_betas(monkeypatch, beta):
    serve_metal(monkeypatch, mode="fast", order="shuffled")
    check(torch.cat([values(3, 4000), torch.tensor([0.0, -0.0]).repeat(300)]), beta=beta)


def test_offsets(monkeypatch):
    serve_metal(monkeypatch)
    for offset in (3, 2**32 - 100, 2**35 - 3, 2**35 + 8):
        check(values(4, 3000), offset=offset)


def test_awkward_sizes(monkeypatch):
    serve_metal(monkeypatch, mode="contract")
    for size in SIZES[6:]:
        check(values(5, size), block_size=512)


def test_eight_million_elements(monkeypatch):
    serve_metal(monkeypatch, mode="fast")
    x = values(97, LARGE)
    m, v = old_moments(96, LARGE, block_size=256)
    mean, blocks = oracle.ema_int8(m, x, beta=0.95, **KEY)
    state = [tensor.clone() for tensor in m]
    assert_same((Launcher("ema_int8_", "metal")(*state, x, beta=0.95, **KEY), *state), (mean, *blocks))
    mean, blocks = oracle.ema_sq_dynamic8(v, x, beta=0.95)
    state = [tensor.clone() for tensor in v]
    assert_same((Launcher("ema_sq_dynamic8_", "metal")(*state, x, beta=0.95), *state), (mean, *blocks))


def test_a_poisoned_block_stays_poisoned(monkeypatch):
    serve_metal(monkeypatch, mode="fast")
    x = values(1, 600)
    m, v = old_moments(2, 600, block_size=256)
    m.scales[1] = v.absmax[1] = NAN
    results = run_guarded("ema_int8_", m._asdict() | {"x": x}, AFFINE, beta=0.9, **KEY)
    mean, blocks = oracle.ema_int8(m, x, beta=0.9, **KEY)
    assert mean.isnan().nonzero().flatten().tolist() == list(range(256, 512))
    assert_same(results, (mean, *blocks))
    mean, blocks = oracle.ema_sq_dynamic8(v, x, beta=0.9)
    assert_same(run_guarded("ema_sq_dynamic8_", v._asdict() | {"x": x}, DYNAMIC, beta=0.9), (mean, *blocks))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strided_one", ["codes", "x"])
def test_layouts(monkeypatch, layout, strided_one):
    serve_metal(monkeypatch)
    x = values(1, 65, 33)
    m, _ = old_moments(2, 65, 33, block_size=256)
    tensors = m._asdict() | {"x": x}
    tensors[strided_one] = strided(tensors[strided_one], layout)
    results = outcome(Launcher("ema_int8_", "metal"), tensors, AFFINE, beta=0.9, **KEY)
    assert_same(results, oracle.ema_int8(m, x, beta=0.9, **KEY)[1])


def test_lists_are_their_items(monkeypatch):
    serve_metal(monkeypatch)
    xs = [values(i, *shape) for i, shape in enumerate([(5,), (3, 300), (0,)])]
    moments = [old_moments(9, *x.shape, block_size=256) for x in xs]
    columns = [[m[i].clone() for m, _ in moments] for i in range(3)]
    key = {"seed": 4, "beta": 0.9}
    numbers = {"step": [5, 6, 5], "stream": [7, 8, 9], "offset": [0, 8, 0]}
    means = Launcher("ema_int8_foreach_", "metal")(*columns, xs, **with_tensors(numbers), **key)
    squares = [[v[i].clone() for _, v in moments] for i in range(2)]
    square_means = Launcher("ema_sq_dynamic8_foreach_", "metal")(*squares, xs, beta=0.9)
    for i, (m, v) in enumerate(moments):
        item = {name: column[i] for name, column in numbers.items()}
        mean, blocks = oracle.ema_int8(m, xs[i], **item, **key)
        assert_same((means[i], *(column[i] for column in columns)), (mean, *blocks))
        mean, blocks = oracle.ema_sq_dynamic8(v, xs[i], beta=0.9)
        assert_same((square_means[i], *(column[i] for column in squares)), (mean, *blocks))
