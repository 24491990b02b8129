"""quantize_int8 and dequantize_int8: the oracle's bits on every backend."""

from functools import cache

import pytest
import torch

import kpop_kernels
from kpop_kernels import backends
from python_ref import quantize as oracle
from tests.ops.blocks import (
    AWKWARD_BLOCKS,
    BLOCK_SIZES,
    DTYPES,
    LARGE,
    ODD_BLOCK_SIZES,
    SIZES,
    VARIANTS,
    assert_golden,
    assert_same,
    awkward_tensor,
    values,
)
from tests.ops.launch import CPU, LAYOUTS, Launcher, assert_compiles, outcome, strided
from tests.ops.lists8 import with_tensors

RULES = [
    {"rounding": "stochastic"},
    {"rounding": "nearest"},
    {"rounding": "stochastic", "mode": "paper"},
    {"rounding": "nearest", "mode": "paper"},
]
KEY = {"seed": 0xFEDCBA9876543210, "step": 2**32 - 1, "stream": 11}


def check(variant, x, dtype=torch.float32, **options):
    """Compare codes, scales, zero points and restored values with the oracle's."""
    expected = oracle.quantize_int8(x, **options)
    assert_same(Launcher("quantize_int8", variant)(x, **options), expected)
    size = {"block_size": options.get("block_size", 256), "dtype": dtype}
    restored = Launcher("dequantize_int8", variant)(*expected, **size)
    assert_same([restored], [oracle.dequantize_int8(*expected, **size)])


@cache
def expected_of(numel, block_size, dtype, seed):
    x = values(seed, numel, dtype=dtype)
    key = {"block_size": block_size, "seed": seed, "step": seed + 3, "stream": 2 * seed}
    codes = oracle.quantize_int8(x, **key)
    return x, key, codes, oracle.dequantize_int8(*codes, block_size=block_size, dtype=dtype)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matches_reference(variant, block_size, dtype):
    seed = 1 + BLOCK_SIZES.index(block_size) + 7 * DTYPES.index(dtype)
    for numel in SIZES:
        x, key, codes, restored = expected_of(numel, block_size, dtype, seed)
        assert_same(Launcher("quantize_int8", variant)(x, **key), codes)
        options = {"block_size": block_size, "dtype": dtype}
        assert_same([Launcher("dequantize_int8", variant)(*codes, **options)], [restored])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " ".join(rule.values()))
@pytest.mark.parametrize("block_size", ODD_BLOCK_SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rules_and_odd_block_sizes(variant, rule, block_size, dtype):
    for numel in (1, 255, 5000):
        check(variant, values(numel, numel, dtype=dtype), dtype, block_size=block_size, **rule, **KEY)


@pytest.mark.parametrize("variant", VARIANTS)
def test_eight_million_elements(variant):
    x, key, codes, restored = expected_of(LARGE, 256, torch.float32, 99)
    assert codes.scales.unique().numel() > 30_000
    assert_same(Launcher("quantize_int8", variant)(x, **key), codes)
    assert_same([Launcher("dequantize_int8", variant)(*codes)], [restored])


@pytest.mark.parametrize("variant", VARIANTS)
def test_golden_numbers(variant):
    assert_golden(Launcher("quantize_int8", variant))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "offset", [1, 7, 8, 1000, 2**32 - 100, 2**35 - 7 * 256, 2**35 - 3, 2**35 + 5, 2**40, 2**62]
)
@pytest.mark.parametrize("block_size", [32, 256])
def test_offsets_and_counter_carries(variant, offset, block_size):
    check(variant, values(5, 4000), block_size=block_size, offset=offset, **KEY)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " ".join(rule.values()))
def test_fractions_that_round_to_one(variant, rule):
    # y in [-2⁻²⁵, 0) has a threshold of 65536, which 16 bits do not hold: always up, to 0.
    rows = values(3, 64 * 256).reshape(-1, 256).clamp(-2, 2)
    rows[:, 2:] *= 1e-9
    rows[:, 0], rows[:, 1] = -2.0, 2.0
    check(variant, rows, **rule, **KEY)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rule", RULES[:2], ids=lambda rule: rule["rounding"])
def test_fractions_at_the_border_between_thresholds(variant, rule):
    # Scale 1, y just beside -k/65536: an instruction that rounds the fraction once more is wrong here.
    k = torch.arange(65536, dtype=torch.float64)
    y = torch.cat([(-k / 65536 + shift).float() for shift in (-(2.0**-25), 0.0, 2.0**-25, 2.0**-24)])
    rows = y[: y.numel() // 254 * 254].reshape(-1, 254)
    ends = torch.tensor([-127.0, 127.0]).expand(len(rows), 2)
    x = torch.cat([ends, rows], 1)
    assert (oracle.quantize_int8(x).scales == 1).all()
    check(variant, x, **rule, **KEY)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " ".join(rule.values()))
@pytest.mark.parametrize("block_size", [8, 256])
def test_awkward_blocks_leave_the_others_alone(variant, rule, block_size):
    x = awkward_tensor(block_size)
    check(variant, x, block_size=block_size, **rule, **KEY)
    plain = Launcher("quantize_int8", variant)(x, block_size=block_size, rounding="nearest")
    assert (plain[0].reshape(-1, block_size)[1::2] == plain[0].reshape(-1, block_size)[1]).all()
    poisoned = plain[1].isnan()[::2].tolist()
    assert [name for name, nan in zip(AWKWARD_BLOCKS, poisoned, strict=True) if nan] == [
        "overflowing range", "NaN", "Inf", "-Inf", "Inf and NaN",
    ]  # fmt: skip


@pytest.mark.parametrize("variant", CPU)
def test_flushing_subnormals_changes_nothing(variant):
    assert torch.set_flush_denormal(True)
    try:
        x = torch.cat([awkward_tensor(), values(1, 4096) * 1e-33])
        results = Launcher("quantize_int8", variant)(x, **KEY)
    finally:
        torch.set_flush_denormal(False)
    assert_same(results, oracle.quantize_int8(x, **KEY))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(variant, layout):
    x = values(9, 2, 65, 33)
    expected = oracle.quantize_int8(x, block_size=32, **KEY)
    results = outcome(Launcher("quantize_int8", variant), {"x": strided(x, layout)}, (), block_size=32, **KEY)
    assert_same(results, expected)
    codes, scales, zero_points = expected
    tensors = {"codes": strided(codes, layout), "scales": scales, "zero_points": zero_points}
    restored = outcome(Launcher("dequantize_int8", variant), tensors, (), block_size=32)
    assert_same(restored, [oracle.dequantize_int8(*expected, block_size=32)])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_writes_to_out_and_nothing_else(variant, dtype):
    x = values(10, 3, 1001, dtype=dtype)
    blocks = oracle.quantize_int8(x, **KEY)
    memory = [torch.zeros_like(tensor) for tensor in blocks]
    strided_codes = torch.zeros(1001, 3, dtype=torch.uint8).mT

    def quantize(x, codes, scales, zero_points):
        results = Launcher("quantize_int8", variant)(x, out=(codes, scales, zero_points), **KEY)
        assert [r.data_ptr() for r in results] == [t.data_ptr() for t in (codes, scales, zero_points)]

    tensors = {"x": x, "codes": strided_codes, "scales": memory[1], "zero_points": memory[2]}
    assert_same(outcome(quantize, tensors, ("codes", "scales", "zero_points")), blocks)

    def dequantize(codes, scales, zero_points, out):
        Launcher("dequantize_int8", variant)(codes, scales, zero_points, dtype=dtype, out=out)

    tensors = dict(zip(("codes", "scales", "zero_points"), blocks, strict=True)) | {
        "out": torch.zeros_like(x)
    }
    assert_same(outcome(dequantize, tensors, ("out",)), [oracle.dequantize_int8(*blocks, dtype=dtype)])


@pytest.mark.parametrize("variant", CPU)
@pytest.mark.parametrize("block_size", [32, 256, 4096])
def test_threads_change_nothing(variant, block_size):
    x = values(11, 300_001)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        check(variant, x, block_size=block_size, **KEY)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("variant", VARIANTS)
def test_lists_are_their_items(variant):
    xs = [values(i, *shape) for i, shape in enumerate([(5,), (3, 300), (0,), ()])]
    shared = {"block_size": 64, "seed": 4}
    numbers = {"step": [5, 2**32 - 1, 5, 0], "stream": [7, 8, 9, 10], "offset": [0, 3, 0, 64]}
    results = Launcher("quantize_int8_foreach", variant)(xs, **shared, **with_tensors(numbers))
    for i in range(4):
        item = {name: column[i] for name, column in numbers.items()}
        expected = oracle.quantize_int8(xs[i], **shared, **item)
        assert_same([result[i] for result in results], expected)
    restored = Launcher("dequantize_int8_foreach", variant)(*results, block_size=64)
    for i, values_of_item in enumerate(restored):
        assert_same([values_of_item], [oracle.dequantize_int8(*(r[i] for r in results), block_size=64)])


def test_public_functions_count_streams_and_name_their_results():
    xs = [values(i, 40) for i in range(3)]
    with backends.trace() as counter:
        many = kpop_kernels.quantize_int8_foreach(xs, seed=2**64 - 1, step=2, stream=5)
        one = [kpop_kernels.quantize_int8(x, seed=2**64 - 1, step=2, stream=5 + i) for i, x in enumerate(xs)]
        restored = kpop_kernels.dequantize_int8_foreach(*zip(*many, strict=True))
    served = backends.serving("quantize_int8", xs[0]).name
    assert counter == {
        ("quantize_int8_foreach", served): 1,
        ("quantize_int8", served): 3,
        ("dequantize_int8_foreach", served): 1,
    }
    for x, blocks, same, values_of_item in zip(xs, many, one, restored, strict=True):
        assert_same(blocks, same)
        assert blocks.codes.shape == x.shape and isinstance(blocks, kpop_kernels.QuantizedInt8)
        assert ((values_of_item - x).abs() <= blocks.scales).all()
    assert kpop_kernels.quantize_int8_foreach([]) == []


def test_a_step_on_the_device_is_the_number():
    x = values(1, 300)
    numbers = kpop_kernels.quantize_int8(x, step=7)
    for step in (torch.tensor(7), torch.tensor(7, dtype=torch.int32), torch.tensor(7.0)):
        assert_same(kpop_kernels.quantize_int8(x, step=step), numbers)


def test_compiles():
    assert_compiles(kpop_kernels.quantize_int8, {"x": values(2, 5, 100)}, (), step=3, stream=4, seed=2**63)


def test_error_is_below_one_step_and_half_a_step():
    x = torch.randn(2**16, generator=torch.Generator().manual_seed(1))
    for rounding, bound in (("stochastic", 1.0), ("nearest", 0.5)):
        blocks = kpop_kernels.quantize_int8(x, rounding=rounding)
        error = (kpop_kernels.dequantize_int8(*blocks) - x).abs().reshape(-1, 256)
        assert (error <= bound * blocks.scales[:, None] * (1 + 1e-4)).all()


ONES = torch.ones(300)
BLOCKS = kpop_kernels.quantize_int8(ONES)
REJECTED = {
    "rounding": (
        {"rounding": "up"},
        ValueError,
        "rounding is 'up', it must be one of 'stochastic', 'nearest'",
    ),
    "mode": ({"mode": "exact"}, ValueError, "mode is 'exact', it must be one of 'unbiased', 'paper'"),
    "seed": ({"seed": -1}, ValueError, f"seed is -1, it must be an integer from 0 to {2**64 - 1}"),
    "step": ({"step": 2**32}, ValueError, f"step is {2**32}, it must be an integer from 0 to {2**32 - 1}"),
    "steps": ({"step": torch.ones(2)}, ValueError, r"step has shape \(2,\), it must be a number or a 0-d"),
    "stream": ({"stream": 2**32}, ValueError, f"stream is {2**32}, it must be an integer"),
    "offset": ({"offset": -8}, ValueError, "offset is -8, it must be an integer from 0 to"),
    "two outputs": ({"out": BLOCKS[:2]}, ValueError, "out has 2 tensors, it must have 3"),
}


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED.values(), ids=REJECTED)
def test_rejects(change, exception, message):
    arguments = {"x": ONES} | change
    with pytest.raises(exception, match="quantize_int8: .*" + message):
        kpop_kernels.quantize_int8(arguments.pop("x"), **arguments)


@pytest.mark.parametrize(
    ("change", "exception", "message"),
    [
        ({"codes": ONES}, TypeError, "codes is torch.float32, it must be torch.uint8 for codes"),
        (
            {"scales": torch.ones(3)},
            ValueError,
            r"scales has shape \(3,\), it must be \(2,\) for blocks of 256",
        ),
        ({"scales": torch.ones(2).half()}, TypeError, "scales is torch.float16, it must be torch.float32"),
        ({"zero_points": torch.ones(2)}, TypeError, "zero_points is torch.float32, it must be torch.uint8"),
        ({"dtype": torch.int32}, ValueError, "dtype is torch.int32, it must be one of torch.float32"),
        ({"block_size": 2**64}, ValueError, "block_size is 18446744073709551616"),
        ({"scales": torch.ones(2, device="meta")}, ValueError, "scales is on meta, it must be on cpu"),
    ],
)
def test_dequantize_rejects(change, exception, message):
    arguments = BLOCKS._asdict() | change
    tensors = [arguments.pop(name) for name in BLOCKS._fields]
    with pytest.raises(exception, match="dequantize_int8: .*" + message):
        kpop_kernels.dequantize_int8(*tensors, **arguments)


def test_lists_say_which_item_is_wrong():
    with pytest.raises(TypeError, match="item 1: quantize_int8: x is torch"):
        kpop_kernels.quantize_int8_foreach([ONES, ONES.int()])
    with pytest.raises(
        ValueError, match="lists differ in length: x has 2, step has 2, stream has 1, offset has 2"
    ):
        kpop_kernels.quantize_int8_foreach([ONES, ONES], stream=[1])
