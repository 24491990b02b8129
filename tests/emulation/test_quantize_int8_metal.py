import pytest
import torch

from kpop_kernels.backends.metal import _blocks
from python_ref import quantize as oracle
from tests.emulation.metal_backend import require_clang, run_guarded, serve_metal
from tests.emulation.metal_cases import in_every_mode, inputs
from tests.emulation.metal_modes import MODES
from tests.ops.blocks import DTYPES, LARGE, assert_golden, assert_same, values
from tests.ops.launch import LAYOUTS, Launcher, outcome, strided
from tests.ops.lists8 import with_tensors

RULES = [
    {"rounding": "stochastic"},
    {"rounding": "nearest"},
    {"rounding": "stochastic", "mode": "paper"},
    {"rounding": "nearest", "mode": "paper"},
]
KEY = {"seed": 0xFEDCBA9876543210, "step": 2**32 - 1, "stream": 2**32 - 2}


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


def check(x, dtype=torch.float32, **options):
    """Compare codes, scales, zero points and restored values with the oracle's, bit for bit."""
    expected = oracle.quantize_int8(x, **options)
    assert_same(run_guarded("quantize_int8", {"x": x}, **options), expected)
    size = {"block_size": options.get("block_size", 256), "dtype": dtype}
    restored = run_guarded("dequantize_int8", expected._asdict(), **size)
    assert_same(restored, [oracle.dequantize_int8(*expected, **size)])


@in_every_mode
def test_matches_reference(monkeypatch, mode, order, dtype, seed):
    compiler = serve_metal(monkeypatch, mode=mode, order=order)
    for i, (x, block_size) in enumerate(inputs(seed, dtype)):
        key = {"seed": seed + 2**63, "step": seed + i, "stream": seed * i}
        check(x, dtype, block_size=block_size, **RULES[i // 2 % 4], **key)
    name = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}[dtype]
    assert set(compiler.launches) == {f"quantize_int8_{name}", f"dequantize_int8_{name}"}


def test_rules_seeds_and_awkward_sizes(monkeypatch):
    serve_metal(monkeypatch, order="shuffled")
    for seed in range(18, 30):
        check(values(seed, 3001), seed=seed * 0x9E3779B97F4A7C15 % 2**64, step=seed, **RULES[seed % 4])
    check(values(1, 65_537), block_size=512, **KEY)
    check(values(2, 1_000_003), **KEY)


@pytest.fixture(scope="module")
def eight_million():
    x = values(99, LARGE)
    blocks = oracle.quantize_int8(x, **KEY)
    return x, blocks, oracle.dequantize_int8(*blocks)


@pytest.mark.parametrize("mode", MODES)
def test_eight_million_elements(monkeypatch, mode, eight_million):
    # A reciprocal or a product that is one unit off changes few codes: smaller tests do not see it.
    x, blocks, restored = eight_million
    serve_metal(monkeypatch, mode=mode)
    assert_same(Launcher("quantize_int8", "metal")(x, **KEY), blocks)
    assert_same([Launcher("dequantize_int8", "metal")(*blocks)], [restored])


@pytest.mark.parametrize("mode", MODES)
def test_golden_numbers(monkeypatch, mode):
    serve_metal(monkeypatch, mode=mode)
    assert_golden(Launcher("quantize_int8", "metal"))


@pytest.mark.parametrize("offset", [1, 7, 8, 2**32 - 100, 2**35 - 7 * 256, 2**35 - 3, 2**35 + 5, 2**62])
def test_offsets_and_counter_carries(monkeypatch, offset):
    serve_metal(monkeypatch)
    for block_size in (32, 256):
        check(values(5, 4000), block_size=block_size, offset=offset, **KEY)


def test_large_tensors_are_launched_in_pieces(monkeypatch):
    compiler = serve_metal(monkeypatch)
    monkeypatch.setattr(_blocks, "_ELEMENTS_PER_LAUNCH", 1100)
    check(values(6, 5000), block_size=264, offset=2**35 - 1000, **KEY)
    assert compiler.launches == ["quantize_int8_float32"] * 5 + ["dequantize_int8_float32"] * 5


@pytest.mark.parametrize("mode", MODES)
def test_fractions_that_round_to_one(monkeypatch, mode):
    # y in [-2⁻²⁵, 0) has a threshold of 65536, which 16 bits do not hold: always up, to 0.
    serve_metal(monkeypatch, mode=mode)
    rows = values(3, 64 * 256).reshape(-1, 256).clamp(-2, 2)
    rows[:, 2:] *= 1e-9
    rows[:, 0], rows[:, 1] = -2.0, 2.0
    for rule in RULES:
        check(rows, **rule, **KEY)


@pytest.mark.parametrize("mode", MODES)
def test_fractions_at_the_border_between_thresholds(monkeypatch, mode):
    serve_metal(monkeypatch, mode=mode)
    k = torch.arange(65536, dtype=torch.float64)
    y = torch.cat([(-k / 65536 + shift).float() for shift in (-(2.0**-25), 0.0, 2.0**-25, 2.0**-24)])
    rows = y[: y.numel() // 254 * 254].reshape(-1, 254)
    x = torch.cat([torch.tensor([-127.0, 127.0]).expand(len(rows), 2), rows], 1)
    assert (oracle.quantize_int8(x).scales == 1).all()
    check(x, **KEY)


def test_every_half(monkeypatch):
    for mode in MODES:
        serve_metal(monkeypatch, mode=mode)
        halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
        check(halves, torch.float16, block_size=64, **KEY)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_restored_values_are_rounded_to_nearest(monkeypatch, dtype):
    # Scales from below the smallest subnormal half to beyond the largest, and ties of both narrow dtypes.
    serve_metal(monkeypatch)
    scales = torch.cat(
        [2.0 ** torch.arange(-26, 12), 1.37 * 10.0 ** torch.arange(-10, 4), torch.tensor([257.0])]
    )
    codes = torch.arange(256, dtype=torch.uint8).repeat(len(scales))
    blocks = {"codes": codes, "scales": scales, "zero_points": torch.arange(len(scales)).byte()}
    restored = run_guarded("dequantize_int8", blocks, dtype=dtype)
    assert_same(restored, [oracle.dequantize_int8(*blocks.values(), dtype=dtype)])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(monkeypatch, layout):
    serve_metal(monkeypatch)
    x = values(9, 2, 65, 33)
    expected = oracle.quantize_int8(x, block_size=32, **KEY)
    quantize, dequantize = (Launcher(op, "metal") for op in ("quantize_int8", "dequantize_int8"))
    assert_same(outcome(quantize, {"x": strided(x, layout)}, (), block_size=32, **KEY), expected)
    tensors = expected._asdict() | {"codes": strided(expected.codes, layout)}
    restored = outcome(dequantize, tensors, (), block_size=32)
    assert_same(restored, [oracle.dequantize_int8(*expected, block_size=32)])


def test_writes_to_strided_outputs(monkeypatch):
    serve_metal(monkeypatch)
    x = values(10, 3, 1001)
    expected = oracle.quantize_int8(x, **KEY)
    out = (torch.zeros(1001, 3, dtype=torch.uint8).mT, *map(torch.zeros_like, expected[1:]))
    results = Launcher("quantize_int8", "metal")(x, out=out, **KEY)
    assert [result is given for result, given in zip(results, out, strict=True)] == [True] * 3
    assert_same(results, expected)


def test_lists_are_their_items(monkeypatch):
    serve_metal(monkeypatch)
    xs = [values(i, *shape) for i, shape in enumerate([(5,), (3, 300), (0,), ()])]
    shared = {"block_size": 64, "seed": 4}
    numbers = {"step": [5, 6, 5, 7], "stream": [7, 8, 9, 10], "offset": [0, 3, 0, 64]}
    results = Launcher("quantize_int8_foreach", "metal")(xs, **with_tensors(numbers), **shared)
    restored = Launcher("dequantize_int8_foreach", "metal")(*results, block_size=64)
    for i, x in enumerate(xs):
        item = {name: column[i] for name, column in numbers.items()}
        expected = oracle.quantize_int8(x, **item, **shared)
        assert_same([result[i] for result in results], expected)
        assert_same([restored[i]], [oracle.dequantize_int8(*expected, block_size=64)])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
def test_a_step_is_read_on_its_device(monkeypatch, dtype):
    serve_metal(monkeypatch)
    x, step = values(1, 300), torch.tensor([3, 7]).to(dtype)[1]
    assert_same(Launcher("quantize_int8", "metal")(x, step=step), oracle.quantize_int8(x, step=7))
    # Elsewhere it is a number that travels with the launch.
    assert _blocks.bound_step(step, torch.device("mps")) == [7]
    assert isinstance(_blocks.bound_step(step, step.device), torch.Tensor)
