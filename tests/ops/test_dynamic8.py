"""quantize_dynamic8 and dequantize_dynamic8: the oracle's bits on every backend."""

from functools import cache

import pytest
import torch

import kpop_kernels
from kpop_kernels.codebooks import dynamic_map
from python_ref import quantize as oracle
from tests.ops.blocks import (
    BLOCK_SIZES,
    DTYPES,
    LARGE,
    ODD_BLOCK_SIZES,
    SIZES,
    VARIANTS,
    assert_same,
    awkward_tensor,
    values,
)
from tests.ops.launch import CPU, LAYOUTS, Launcher, assert_compiles, outcome, strided

SIGNED = pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])


def check(variant, x, dtype=torch.float32, **options):
    """Compare codes, absmax and restored values with the oracle's."""
    expected = oracle.quantize_dynamic8(x, **options)
    assert_same(Launcher("quantize_dynamic8", variant)(x, **options), expected)
    restored = Launcher("dequantize_dynamic8", variant)(*expected, dtype=dtype, **options)
    assert_same([restored], [oracle.dequantize_dynamic8(*expected, dtype=dtype, **options)])


@cache
def expected_of(numel, block_size, dtype, signed):
    x = values(numel + block_size, numel, dtype=dtype)
    codes = oracle.quantize_dynamic8(x, block_size=block_size, signed=signed)
    return x, codes, oracle.dequantize_dynamic8(*codes, block_size=block_size, signed=signed, dtype=dtype)


@pytest.mark.parametrize("variant", VARIANTS)
@SIGNED
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matches_reference(variant, signed, block_size, dtype):
    for numel in SIZES[: 8 if block_size == 256 else 7]:
        x, codes, restored = expected_of(numel, block_size, dtype, signed)
        options = {"block_size": block_size, "signed": signed}
        assert_same(Launcher("quantize_dynamic8", variant)(x, **options), codes)
        assert_same([Launcher("dequantize_dynamic8", variant)(*codes, dtype=dtype, **options)], [restored])


@pytest.mark.parametrize("variant", VARIANTS)
@SIGNED
@pytest.mark.parametrize("block_size", ODD_BLOCK_SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_odd_block_sizes(variant, signed, block_size, dtype):
    for numel in (1, 255, 5000):
        check(variant, values(numel, numel, dtype=dtype), dtype, block_size=block_size, signed=signed)


@pytest.mark.parametrize("variant", VARIANTS)
def test_eight_million_elements(variant):
    x, codes, restored = expected_of(LARGE, 256, torch.float32, False)
    assert codes.absmax.unique().numel() > 30_000
    assert_same(Launcher("quantize_dynamic8", variant)(x), codes)
    assert_same([Launcher("dequantize_dynamic8", variant)(*codes)], [restored])


@pytest.mark.parametrize("variant", VARIANTS)
@SIGNED
@pytest.mark.parametrize("block_size", [256, 4096])
def test_every_float_near_a_midpoint(variant, signed, block_size):
    # An absmax of 1 keeps the values as they are. 400 neighbours on each side: where a line cannot tell.
    magnitudes = torch.from_numpy(oracle.dynamic_map(signed))
    midpoints = (magnitudes[:-1] + magnitudes[1:]) * 0.5
    bits = midpoints.view(torch.int32)[:, None] + torch.arange(-400, 401, dtype=torch.int32)
    near = bits.reshape(-1).view(torch.float32)
    near = near[: near.numel() // (block_size - 1) * (block_size - 1)].reshape(-1, block_size - 1)
    check(variant, torch.cat([torch.ones(len(near), 1), near], 1), block_size=block_size, signed=signed)


@pytest.mark.parametrize("variant", VARIANTS)
@SIGNED
def test_the_values_themselves_and_ties(variant, signed):
    magnitudes = dynamic_map(signed)
    codes, absmax = Launcher("quantize_dynamic8", variant)(magnitudes, signed=signed)
    assert codes.tolist() == list(range(256)) and absmax.item() == 1
    ties = torch.cat([(magnitudes[:-1] + magnitudes[1:]) * 0.5, torch.ones(1)])
    codes, _ = Launcher("quantize_dynamic8", variant)(ties, signed=signed)
    assert codes.tolist() == [*range(255), 255]


@pytest.mark.parametrize("variant", VARIANTS)
@SIGNED
@pytest.mark.parametrize("block_size", [8, 256])
def test_awkward_blocks_leave_the_others_alone(variant, signed, block_size):
    x = awkward_tensor(block_size)
    check(variant, x, block_size=block_size, signed=signed)
    codes, absmax = Launcher("quantize_dynamic8", variant)(x, block_size=block_size, signed=signed)
    plain = codes.reshape(-1, block_size)[1::2]
    assert (plain == plain[0]).all() and (absmax[1::2] == 2).all()
    assert absmax[::2].isnan().sum() == 4


@pytest.mark.parametrize("variant", VARIANTS)
@SIGNED
def test_absmax_whose_reciprocal_is_subnormal(variant, signed):
    for largest in (2.0**125, 2.0**126, 2.0**126 * (1 + 2.0**-23), 2.0**127, 3.4028234e38):
        check(variant, torch.rand(512, generator=torch.Generator().manual_seed(0)) * largest, signed=signed)


@pytest.mark.parametrize("variant", VARIANTS)
@SIGNED
def test_subnormal_values_and_products(variant, signed):
    x = values(1, 4096)
    for scale in (1e-28, 1e-31, 1e-32, 1e-34, 1e-36, 1e-38):
        check(variant, x * scale, signed=signed)


@pytest.mark.parametrize("variant", CPU)
@SIGNED
def test_flushing_subnormals_changes_nothing(variant, signed):
    x = torch.cat([awkward_tensor(), values(1, 4096) * 1e-33, values(2, 512) * 3e37])
    expected = oracle.quantize_dynamic8(x, signed=signed)
    restored = oracle.dequantize_dynamic8(*expected, signed=signed)
    assert torch.set_flush_denormal(True)
    try:
        results = Launcher("quantize_dynamic8", variant)(x, signed=signed)
        values_again = Launcher("dequantize_dynamic8", variant)(*expected, signed=signed)
    finally:
        torch.set_flush_denormal(False)
    assert_same(results, expected)
    assert_same([values_again], [restored])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(variant, layout):
    x = values(9, 2, 65, 33)
    expected = oracle.quantize_dynamic8(x, block_size=32)
    results = outcome(Launcher("quantize_dynamic8", variant), {"x": strided(x, layout)}, (), block_size=32)
    assert_same(results, expected)
    tensors = {"codes": strided(expected.codes, layout), "absmax": expected.absmax}
    restored = outcome(Launcher("dequantize_dynamic8", variant), tensors, (), block_size=32)
    assert_same(restored, [oracle.dequantize_dynamic8(*expected, block_size=32)])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_writes_to_out_and_nothing_else(variant, dtype):
    x = values(10, 3, 1001, dtype=dtype)
    blocks = oracle.quantize_dynamic8(x)

    def quantize(x, codes, absmax):
        Launcher("quantize_dynamic8", variant)(x, out=(codes, absmax))

    tensors = {"x": x, "codes": torch.zeros(1001, 3).byte().mT, "absmax": torch.zeros(12)}
    assert_same(outcome(quantize, tensors, ("codes", "absmax")), blocks)

    def dequantize(codes, absmax, out):
        Launcher("dequantize_dynamic8", variant)(codes, absmax, dtype=dtype, out=out)

    tensors = {"codes": blocks.codes, "absmax": blocks.absmax, "out": torch.zeros_like(x)}
    assert_same(outcome(dequantize, tensors, ("out",)), [oracle.dequantize_dynamic8(*blocks, dtype=dtype)])


@pytest.mark.parametrize("variant", CPU)
def test_threads_change_nothing(variant):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        check(variant, values(11, 300_001))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("variant", VARIANTS)
@SIGNED
def test_lists_are_their_items(variant, signed):
    xs = [values(i, *shape) for i, shape in enumerate([(5,), (3, 300), (0,), ()])]
    options = {"block_size": 64, "signed": signed}
    results = Launcher("quantize_dynamic8_foreach", variant)(xs, **options)
    restored = Launcher("dequantize_dynamic8_foreach", variant)(*results, **options)
    for i, x in enumerate(xs):
        expected = oracle.quantize_dynamic8(x, **options)
        assert_same([result[i] for result in results], expected)
        assert_same([restored[i]], [oracle.dequantize_dynamic8(*expected, **options)])


def test_public_functions_name_their_results():
    xs = [values(i, 40) for i in range(2)]
    many = kpop_kernels.quantize_dynamic8_foreach(xs)
    restored = kpop_kernels.dequantize_dynamic8_foreach(*zip(*many, strict=True))
    for x, blocks, values_of_item in zip(xs, many, restored, strict=True):
        assert isinstance(blocks, kpop_kernels.QuantizedDynamic8)
        assert_same(kpop_kernels.quantize_dynamic8(x), blocks)
        assert_same([kpop_kernels.dequantize_dynamic8(*blocks)], [values_of_item])


def test_compiles():
    assert_compiles(kpop_kernels.quantize_dynamic8, {"x": values(2, 5, 100)}, (), signed=True)


CODES, ABSMAX = kpop_kernels.quantize_dynamic8(torch.ones(300))
REJECTED = {
    "three outputs": ({"out": (CODES, ABSMAX, CODES)}, ValueError, "out has 3 tensors, it must have 2"),
}


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED.values(), ids=REJECTED)
def test_rejects(change, exception, message):
    arguments = {"x": torch.ones(300)} | change
    with pytest.raises(exception, match="quantize_dynamic8: .*" + message):
        kpop_kernels.quantize_dynamic8(arguments.pop("x"), **arguments)


@pytest.mark.parametrize(
    ("change", "exception", "message"),
    [
        ({"codes": torch.ones(300)}, TypeError, "codes is torch.float32, it must be torch.uint8 for codes"),
        (
            {"absmax": torch.ones(3)},
            ValueError,
            r"absmax has shape \(3,\), it must be \(2,\) for blocks of 256",
        ),
        ({"dtype": torch.float64}, ValueError, "dtype is torch.float64, it must be one of torch.float32"),
        ({"block_size": 12}, ValueError, "block_size is 12"),
    ],
)
def test_dequantize_rejects(change, exception, message):
    arguments = {"codes": CODES, "absmax": ABSMAX} | change
    tensors = [arguments.pop(name) for name in ("codes", "absmax")]
    with pytest.raises(exception, match="dequantize_dynamic8: .*" + message):
        kpop_kernels.dequantize_dynamic8(*tensors, **arguments)


@pytest.mark.parametrize("variant", VARIANTS)
class TestReportedElsewhere:
    """Defects reported of other quantizers, each named by what it shows."""

    @SIGNED
    def test_small_values_and_zeros_survive_a_large_neighbour(self, variant, signed):
        x = torch.tensor([1.0, 1e-6, 0.0, 3e-5])
        blocks = Launcher("quantize_dynamic8", variant)(x, signed=signed)
        restored = Launcher("dequantize_dynamic8", variant)(*blocks, signed=signed)
        assert restored[2] == 0
        assert ((restored - x).abs() <= 0.5 * x).all()

    def test_the_map_is_sorted_and_holds_zero_and_one(self, variant):
        for signed in (False, True):
            assert torch.equal(dynamic_map(signed), torch.from_numpy(oracle.dynamic_map(signed)))
            codes = torch.arange(256).byte()
            restored = Launcher("dequantize_dynamic8", variant)(codes, torch.ones(1), signed=signed)
            assert torch.equal(restored, dynamic_map(signed))
            assert restored.unique().numel() == 256 and {0.0, 1.0} <= set(restored.tolist())

    def test_an_all_zero_block_is_not_nan(self, variant):
        blocks = Launcher("quantize_dynamic8", variant)(torch.zeros(64))
        assert blocks[1].item() == 0
        assert (Launcher("dequantize_dynamic8", variant)(*blocks) == 0).all()

    def test_small_blocks_keep_their_resolution(self, variant):
        x = values(4, 256).abs() * 1e-16
        restored = Launcher("dequantize_dynamic8", variant)(*Launcher("quantize_dynamic8", variant)(x))
        large = x > x.max() / 2
        assert ((restored - x).abs()[large] < 0.01 * x[large]).all()
