import pytest
import torch

from kpop_kernels import codebooks
from kpop_kernels.backends.metal import _codebook
from python_ref import quantize as oracle
from tests.emulation.metal_backend import require_clang, run_guarded, serve_metal
from tests.emulation.metal_cases import in_every_mode, inputs
from tests.emulation.metal_modes import MODES
from tests.ops.blocks import LARGE, assert_same, values
from tests.ops.launch import LAYOUTS, Launcher, outcome, strided


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


def check(x, dtype=torch.float32, **options):
    """Compare codes, absmax and restored values with the oracle's, bit for bit."""
    expected = oracle.quantize_dynamic8(x, **options)
    assert_same(run_guarded("quantize_dynamic8", {"x": x}, **options), expected)
    restored = run_guarded("dequantize_dynamic8", expected._asdict(), dtype=dtype, **options)
    assert_same(restored, [oracle.dequantize_dynamic8(*expected, dtype=dtype, **options)])


@in_every_mode
def test_matches_reference(monkeypatch, mode, order, dtype, seed):
    serve_metal(monkeypatch, mode=mode, order=order)
    for i, (x, block_size) in enumerate(inputs(seed, dtype)):
        check(x, dtype, block_size=block_size, signed=i // 2 % 2 == 0)


@pytest.mark.parametrize("signed", [False, True])
def test_awkward_sizes(monkeypatch, signed):
    serve_metal(monkeypatch, order="reversed")
    check(values(1, 65_537), block_size=2048, signed=signed)
    check(values(2, 1_000_003), block_size=64, signed=signed)


@pytest.mark.parametrize("mode", ["division_low", "fast"])
def test_eight_million_elements(monkeypatch, mode):
    x = values(98, LARGE)
    expected = oracle.quantize_dynamic8(x, signed=True)
    serve_metal(monkeypatch, mode=mode)
    assert_same(Launcher("quantize_dynamic8", "metal")(x, signed=True), expected)
    restored = Launcher("dequantize_dynamic8", "metal")(*expected, signed=True)
    assert_same([restored], [oracle.dequantize_dynamic8(*expected, signed=True)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("signed", [False, True])
def test_midpoints_and_their_neighbours(monkeypatch, signed, mode):
    serve_metal(monkeypatch, mode=mode)
    middle = codebooks.dynamic_midpoints(signed)
    around = torch.cat([middle + shift * middle.abs() * 2.0**-23 for shift in (-1, 0, 1)])
    rows = torch.cat([around, -around, torch.zeros(-2 * around.numel() % 255)]).reshape(-1, 255)
    # With absmax 1 the quotient is the value itself.
    check(torch.cat([rows, torch.ones(len(rows), 1)], 1), signed=signed)


@pytest.mark.parametrize("signed", [False, True])
def test_every_code_is_restored(monkeypatch, signed):
    serve_metal(monkeypatch)
    absmax = torch.tensor([0.0, 2.0**-126, 1e-30, 1.0, 3.4028234e38, float("nan")])
    blocks = {"codes": torch.arange(256, dtype=torch.uint8).repeat(len(absmax)), "absmax": absmax}
    restored = run_guarded("dequantize_dynamic8", blocks, signed=signed)
    assert_same(restored, [oracle.dequantize_dynamic8(*blocks.values(), signed=signed)])


@pytest.mark.parametrize("signed", [False, True])
def test_table_finds_the_code_of_every_magnitude_near_a_bucket_border(signed):
    table = _codebook.dynamic_buckets(signed, "cpu")
    starts = (torch.arange(103 << 7, 127 << 7, dtype=torch.int32) << 16).view(torch.float32)
    values_of_map = codebooks.dynamic_map(signed)
    magnitudes = values_of_map[values_of_map >= 0]
    middle = (magnitudes[:-1] + magnitudes[1:]) * 0.5
    for bits in (0, 1, 0x7FFF, 0xFFFF):
        y = (starts.view(torch.int32) + bits).view(torch.float32)
        found = (table[:-1] & 0xFF) + (bits > table[:-1] >> 8)
        assert torch.equal(found.long(), torch.bucketize(y, middle))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(monkeypatch, layout):
    serve_metal(monkeypatch)
    x = values(9, 2, 65, 33)
    expected = oracle.quantize_dynamic8(x, block_size=32)
    quantize, dequantize = (Launcher(op, "metal") for op in ("quantize_dynamic8", "dequantize_dynamic8"))
    assert_same(outcome(quantize, {"x": strided(x, layout)}, (), block_size=32), expected)
    tensors = {"codes": strided(expected.codes, layout), "absmax": expected.absmax}
    restored = outcome(dequantize, tensors, (), block_size=32)
    assert_same(restored, [oracle.dequantize_dynamic8(*expected, block_size=32)])


def test_lists_are_their_items(monkeypatch):
    serve_metal(monkeypatch)
    xs = [values(i, *shape) for i, shape in enumerate([(5,), (3, 300), (0,), ()])]
    results = Launcher("quantize_dynamic8_foreach", "metal")(xs, block_size=64)
    restored = Launcher("dequantize_dynamic8_foreach", "metal")(*results, block_size=64)
    for i, x in enumerate(xs):
        expected = oracle.quantize_dynamic8(x, block_size=64)
        assert_same([result[i] for result in results], expected)
        assert_same([restored[i]], [oracle.dequantize_dynamic8(*expected, block_size=64)])
