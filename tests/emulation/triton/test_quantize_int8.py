"""The affine grid in Triton's interpreter, bit for bit against the oracle; planted bugs are found."""

from itertools import product

import pytest
import torch

from python_ref import quantize as oracle
from tests.emulation.triton import interpreter, operators
from tests.emulation.triton.operators import FEW_PROGRAMS
from tests.ops.blocks import (
    BLOCK_SIZES,
    DTYPES,
    LARGE,
    ODD_BLOCK_SIZES,
    assert_golden,
    assert_same,
    awkward_tensor,
    values,
)
from tests.ops.launch import LAYOUTS, strided

pytestmark = pytest.mark.usefixtures("interpreted")

RULES = [dict(zip(("rounding", "mode"), rule, strict=True))
         for rule in product(("stochastic", "nearest"), ("unbiased", "paper"))]  # fmt: skip
KEY = {"seed": 0xFEDCBA9876543210, "step": 2**32 - 1, "stream": 2**32 - 2}
SIZES = (0, 1, 7, 255, 256, 257, 2999)
GRID = list(product(BLOCK_SIZES, DTYPES))


def check(x, dtype=torch.float32, *, module=None, config=None, **options):
    """Compare codes, scales, zero points and restored values with the oracle's."""
    expected = oracle.quantize_int8(x, **options)
    where = {"module": module, "config": config}
    assert_same(operators.run("quantize_int8", {"x": x}, **where, **options), expected)
    size = {"block_size": options.get("block_size", 256), "dtype": dtype}
    restored = operators.run("dequantize_int8", expected._asdict(), **where, **size)
    assert_same(restored, [oracle.dequantize_int8(*expected, **size)])


@pytest.mark.parametrize(("block_size", "dtype"), GRID, ids=str)
def test_matches_the_oracle_in_every_bit(interpreted, block_size, dtype):
    seed = 1 + GRID.index((block_size, dtype))
    for i, numel in enumerate(SIZES):
        key = {"seed": seed << 40 | numel, "step": seed, "stream": 2 * seed, "block_size": block_size}
        x = values(seed, numel, dtype=dtype)
        for rule in (RULES[0], RULES[1 + (seed + i) % 3]):
            check(x, dtype, **key, **rule)
    launched = ["quantize_int8_kernel", "dequantize_int8_kernel"] * 2
    assert interpreted == launched * (len(SIZES) - 1)


def test_golden_numbers(interpreted):
    assert_golden(operators.in_few_programs("quantize_int8"))
    assert interpreted == ["quantize_int8_kernel"] * 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_programs(dtype):
    check(values(3, 65_537, dtype=dtype), dtype, **KEY)


@pytest.mark.parametrize("numel", [1_000_003, LARGE])
def test_millions_of_elements(numel):
    check(values(99, numel), config=FEW_PROGRAMS, **KEY)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " ".join(rule.values()))
@pytest.mark.parametrize("block_size", ODD_BLOCK_SIZES)
def test_every_multiple_of_8_is_a_block_size(rule, block_size):
    for dtype, numel in zip(DTYPES, (1, 255, 5000), strict=True):
        check(values(numel, numel, dtype=dtype), dtype, block_size=block_size, **rule, **KEY)


@pytest.mark.parametrize("offset", [1, 7, 8, 2**32 - 100, 2**35 - 1792, 2**35 - 3, 2**35 + 6, 2**63 - 4])
@pytest.mark.parametrize("block_size", [32, 256])
def test_offsets_and_counter_carries(block_size, offset):
    check(values(5, 3000), block_size=block_size, offset=offset, **KEY)


@pytest.mark.parametrize("shift", range(8))
def test_a_shard_rounds_like_the_whole(shift):
    x = values(6, 1024)
    whole = operators.run("quantize_int8", {"x": x}, block_size=32, offset=shift, **KEY)
    shard = operators.run("quantize_int8", {"x": x[96:]}, block_size=32, offset=shift + 96, **KEY)
    assert_same(shard, (whole[0][96:], whole[1][3:], whole[2][3:]))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " ".join(rule.values()))
@pytest.mark.parametrize("block_size", [8, 256])
def test_awkward_blocks(rule, block_size):
    check(awkward_tensor(block_size), block_size=block_size, **rule, **KEY)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " ".join(rule.values()))
def test_fractions_that_round_to_one(rule):
    check(tiny_beside_large(), **rule, **KEY)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_strides(layout):
    x = strided(values(7, 24, 50), layout)
    check(x, **KEY)
    codes, scales, zero_points = oracle.quantize_int8(x, **KEY)
    tensors = {"codes": strided(codes, layout), "scales": scales, "zero_points": zero_points}
    (restored,) = operators.run("dequantize_int8", tensors)
    assert_same([restored], [oracle.dequantize_int8(codes, scales, zero_points)])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32], ids=str)
def test_the_step_is_read_on_the_device(dtype):
    x, step = values(8, 1000), torch.tensor(7, dtype=dtype)
    before = operators.run("quantize_int8", {"x": x}, step=step, seed=1)
    assert_same(before, oracle.quantize_int8(x, step=7, seed=1))
    step += 1
    assert_same(
        operators.run("quantize_int8", {"x": x}, step=step, seed=1), oracle.quantize_int8(x, step=8, seed=1)
    )


def test_a_step_on_the_host_is_passed_by_value(monkeypatch):
    from kpop_kernels.backends.triton import philox
    from kpop_kernels.backends.triton.scalars import scalar_argument

    assert scalar_argument(torch.tensor(2**32 - 1), torch.device("meta")) == 2**32 - 1
    monkeypatch.setattr(philox, "scalar_argument", lambda value, device: value.item())
    check(values(8, 1000), **KEY)


def test_programs_behind_2_to_the_31_find_their_elements():
    """Only the last programs run; what they do not touch of 8 GB is never there."""
    n = 2**31 + 4096 + 40
    x, codes = torch.empty(n, dtype=torch.bfloat16), torch.empty(n, dtype=torch.uint8)
    scales, zero_points = torch.empty(-(-n // 256)), torch.empty(-(-n // 256), dtype=torch.uint8)
    tail = values(9, 4096 + 40, dtype=torch.bfloat16)
    x[2**31 :] = tail
    with interpreter.last_programs(3):
        operators.file_of("quantize_int8").quantize_int8(x, seed=5, out=(codes, scales, zero_points))
    assert_same(
        (codes[2**31 :], scales[2**23 :], zero_points[2**23 :]),
        oracle.quantize_int8(tail, seed=5, offset=2**31),
    )


def tiny_beside_large():
    """Fractions that round to 1 in float32: their threshold is 65536."""
    rows = values(3, 8 * 256).reshape(-1, 256).clamp(-2, 2)
    rows[:, 2:] *= 1e-9
    rows[:, 0], rows[:, 1] = -2.0, 2.0
    return rows


def beside_subnormals():
    """Half of the values are below 2⁻¹²⁶ and would still be worth a code."""
    x = torch.where(torch.arange(3000) % 2 == 0, 0.9, 1.2) * 2.0**-126
    x[::32] = 254 * 1.2 * 2.0**-126
    return x


def near_ties():
    """Values half-way between two codes, as nearly as float32 has them; the scale is no power of two."""
    x = (torch.arange(3000) % 64 - 31.5) * 0.3
    x[::32], x[1::32] = 0.3 * 127, -0.3 * 127
    return x


BUGS = [
    ("load without mask", "quantize_int8", "x_ptr + first + offsets, inside)", "x_ptr + first + offsets)"),
    ("store without mask", "quantize_int8", "zero_point), inside)\n    blocks", "zero_point))\n    blocks"),
    ("scales without mask", "quantize_int8", "scale, exist)", "scale)"),
    ("mask one too wide", "blocks", "inside = offsets < n", "inside = offsets <= n"),
    ("padding of rows is stored", "blocks", "inside = inside & (columns < BLOCK_SIZE)", "inside = inside & True"),
    ("wrong lane", "quantize_int8", "x_ptr + first + offsets, inside", "x_ptr + first + (offsets ^ 1), inside"),
    ("wrong row", "blocks", "[:, None] * BLOCK_SIZE + columns", "[:, None] * BLOCKS + columns"),
    ("wrong scale", "quantize_int8", "scales_ptr + first_block + blocks, scale,", "scales_ptr + blocks, scale,"),
    ("arguments swapped", "quantize_int8", "n, *random)", "n, *random[:2], *random[:1:-1])"),
    ("divides each element", "quantize_int8", "flush(x) * inverse[:, None]",
     "tl.div_rn(flush(x), scale[:, None])"),
    ("keeps subnormals", "quantize_int8", "flush(x) * inverse", "x * inverse"),
    ("NaN is quantized", "affine", "usable = finite & (", "usable = ("),
    ("range without 0", "affine", "tl.max(x.to(tl.int32, bitcast=True), axis=1), 0)",
     "tl.max(x.to(tl.int32, bitcast=True), axis=1), -2147483648)"),
    ("zero point rounded", "affine", "else tl.ceil(ratio)", "else tl.floor(ratio + 0.5)"),
    ("compares with at most", "affine", "random < threshold", "random <= threshold"),
    ("rounds to 15 bits", "affine", "* 65536.0", "* 65534.0"),
    ("codes wrap", "affine", "tl.minimum(tl.maximum(k + zero_point[:, None], 0), 255)", "k + zero_point[:, None]"),
    ("step ignored", "philox", "seed, step, stream)\n    if", "seed, step * 0, stream)\n    if"),
    ("high word of the counter lost", "philox", "(calls >> 32)", "(calls >> 63)"),
    ("high halves first", "philox", "words & 0xFFFF, words >> 16", "words >> 16, words & 0xFFFF"),
    ("words out of order", "philox", "tl.interleave(w0, w2), tl.interleave(w1, w3)",
     "tl.interleave(w0, w1), tl.interleave(w2, w3)"),
    ("next call is the same one", "philox", "philox_words(calls + 1", "philox_words(calls"),
    ("shift one word too far", "philox", "tl.where(one, w3 >> 16 | w4 << 16, w3)", "tl.where(one, w4, w3)"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new"), [bug[1:] for bug in BUGS], ids=[bug[0] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, file, old, new):
    broken = operators.mutated("quantize_int8", file, tmp_path, old, new)
    how = r"elements differ|OutOfBounds"
    with pytest.raises((AssertionError, broken.triton.runtime.errors.InterpreterError), match=how):
        check(values(1, 4997), module=broken, block_size=64, **KEY)
        check(values(2, 1000), module=broken, block_size=24, offset=2**36 - 501, **KEY)
        check(awkward_tensor(64), module=broken, block_size=64, **KEY)
        check(awkward_tensor(64), module=broken, block_size=64, mode="paper", **KEY)
        for x in (beside_subnormals(), near_ties(), tiny_beside_large(), -tiny_beside_large().abs()):
            check(x, module=broken, rounding="nearest")
            check(x, module=broken, **KEY)
        check(values(10, 2**20), module=broken, config=FEW_PROGRAMS, mode="paper", **KEY)
