"""quantize_int8, dequantize_int8 and stochastic_round_bf16 of the CUDA backend, emulated: the oracle's bits."""

from itertools import product

import pytest
import torch

from kpop_kernels.backends.cuda import native
from python_ref import quantize as oracle
from tests.emulation import cuda_emulator
from tests.emulation.cuda_backend import emulated, operator, run
from tests.emulation.tools import require_tool
from tests.ops.blocks import (
    BLOCK_SIZES,
    DTYPES,
    LARGE,
    ODD_BLOCK_SIZES,
    SIZES,
    assert_golden,
    assert_same,
    awkward_tensor,
    values,
)
from tests.ops.launch import LAYOUTS, strided

ORDERS = cuda_emulator.ORDERS
RULES = [
    {"rounding": rounding, "mode": mode}
    for rounding, mode in product(("stochastic", "nearest"), ("unbiased", "paper"))
]
KEY = {"seed": 0xFEDCBA9876543210, "step": 2**32 - 1, "stream": 11}


@pytest.fixture(autouse=True)
def compiler(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())


def expected_launches(x, block_size, stochastic, offset=0):
    """Blocks of 256 go to the kernel for four at a time, but for the end that does not fill a warp."""
    template = str(stochastic).lower()
    by_256 = f"kpop::quantize_int8_by_256<{cuda_name(x.dtype)}, {template}>"
    fast = x.numel() // 1024 if block_size == 256 and offset % 8 == 0 else 0
    rest = x.numel() > 1024 * fast
    return [by_256] * (fast > 0) + [f"kpop::quantize_int8<{template}>"] * rest


def cuda_name(dtype):
    formats = {torch.bfloat16: "Bfloat16Format", torch.float16: "HalfFormat"}
    return f"emulation::Float16<emulation::{formats[dtype]}>" if dtype in formats else "float"


def check(cuda, x, dtype=None, **options):
    block_size, rounding = options.get("block_size", 256), options.get("rounding", "stochastic")
    cuda.launches()
    expected = oracle.quantize_int8(x, **options)
    assert_same(run("quantize_int8", x, **options), expected)
    offset = options.get("offset", 0)
    assert cuda.launches() == expected_launches(x, block_size, rounding == "stochastic", offset)
    size = {"block_size": block_size, "dtype": dtype or x.dtype}
    assert_same(run("dequantize_int8", *expected, **size), [oracle.dequantize_int8(*expected, **size)])
    assert cuda.launches() == ["kpop::dequantize_int8"] * (x.numel() > 0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_matches_reference(block_size, order):
    first_seed = 1 + 50 * BLOCK_SIZES.index(block_size)
    with emulated(order, seed=block_size) as cuda:
        for seed, (numel, dtype) in enumerate(product(SIZES[:-2], DTYPES), first_seed):
            key = {"seed": seed << 40, "step": seed, "stream": 2 * seed}
            check(cuda, values(seed, numel, dtype=dtype), block_size=block_size, **key)
        dtype = DTYPES[(BLOCK_SIZES.index(block_size) + ORDERS.index(order)) % 3]
        check(cuda, values(first_seed, 65_537, dtype=dtype), block_size=block_size, **KEY)


@pytest.mark.parametrize("block_size", [256, 1024])
def test_a_million_elements(block_size):
    with emulated() as cuda:
        check(cuda, values(5, 1_000_003), block_size=block_size, **KEY)


def test_golden_numbers():
    with emulated() as cuda:
        assert_golden(operator("quantize_int8"))
        assert cuda.launches() == ["kpop::quantize_int8<false>", "kpop::quantize_int8<true>"]


def test_eight_million_elements():
    x = values(99, LARGE)
    with emulated() as cuda:
        results = operator("quantize_int8")(x, **KEY)
        restored = operator("dequantize_int8")(*results)
        assert cuda.launches() == ["kpop::quantize_int8_by_256<float, true>", "kpop::dequantize_int8"]
    expected = oracle.quantize_int8(x, **KEY)
    assert expected.scales.unique().numel() > 30_000
    assert_same(results, expected)
    assert_same([restored], [oracle.dequantize_int8(*expected)])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " ".join(rule.values()))
def test_rules_and_odd_block_sizes(rule, order):
    with emulated(order) as cuda:
        for block_size, dtype in product((256, *ODD_BLOCK_SIZES), DTYPES):
            for numel in (1, 255, 9000):
                check(cuda, values(numel, numel, dtype=dtype), block_size=block_size, **rule, **KEY)


@pytest.mark.parametrize("offset", [1, 2, 4, 7, 8, 2**32 - 100, 2**35 - 7 * 256, 2**35 - 3, 2**35 + 5, 2**62])
def test_offsets_and_counter_carries(offset):
    with emulated() as cuda:
        for block_size in (32, 256):
            check(cuda, values(5, 4000), block_size=block_size, offset=offset, **KEY)


def test_fractions_at_the_border_between_thresholds():
    # Scale 1, y just beside -k/65536: one more rounding of the fraction would be wrong here.
    k = torch.arange(65536, dtype=torch.float64)
    y = torch.cat([(-k / 65536 + shift).float() for shift in (-(2.0**-25), 0.0, 2.0**-25, 2.0**-24)])
    rows = y[: y.numel() // 254 * 254].reshape(-1, 254)
    x = torch.cat([torch.tensor([-127.0, 127.0]).expand(len(rows), 2), rows], 1)
    assert (oracle.quantize_int8(x).scales == 1).all()
    with emulated() as cuda:
        check(cuda, x, **KEY)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " ".join(rule.values()))
def test_awkward_blocks_leave_the_others_alone(rule, order):
    with emulated(order) as cuda:
        for block_size in (8, 32, 256, 264, 2048):
            check(cuda, awkward_tensor(block_size), block_size=block_size, **rule, **KEY)


def test_fractions_that_round_to_one():
    rows = values(3, 64 * 256).reshape(-1, 256).clamp(-2, 2)
    rows[:, 2:] *= 1e-9
    rows[:, 0], rows[:, 1] = -2.0, 2.0
    with emulated() as cuda:
        for rule in RULES:
            check(cuda, rows, **rule, **KEY)


@pytest.mark.parametrize("block_size", [32, 256, 2048])
def test_any_address_and_strides_are_served(block_size):
    quantize, restore = operator("quantize_int8"), operator("dequantize_int8")
    memory, bytes_ = values(7, 5001), torch.zeros(5001, dtype=torch.uint8)
    x = memory[1:]
    with emulated() as cuda:
        blocks = -(-5000 // block_size)
        out = (bytes_[1:], torch.empty(blocks), torch.empty(blocks, dtype=torch.uint8))
        expected = oracle.quantize_int8(x, block_size=block_size, **KEY)
        assert_same(quantize(x, block_size=block_size, out=out, **KEY), expected)
        assert cuda.launches() == ["kpop::quantize_int8<true>"]
        restored = restore(*out, block_size=block_size, out=torch.empty(5001)[1:])
        assert_same([restored], [oracle.dequantize_int8(*expected, block_size=block_size)])
        assert bytes_[0] == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_strides(layout):
    x = values(9, 24, 50)
    expected = oracle.quantize_int8(x, block_size=32, **KEY)
    with emulated():
        assert_same(run("quantize_int8", strided(x, layout), block_size=32, **KEY), expected)
        codes = strided(expected.codes, layout)
        restored = run("dequantize_int8", codes, *expected[1:], block_size=32)
        rounded = run("stochastic_round_bf16", strided(x, layout), **KEY)
    assert_same(restored, [oracle.dequantize_int8(*expected, block_size=32)])
    assert_same(rounded, [oracle.stochastic_round_bf16(x, **KEY)])


def test_lists_are_their_items():
    xs = [values(i, *shape) for i, shape in enumerate([(5,), (3, 700), (0,), ()])]
    with emulated() as cuda:
        numbers = {"step": [torch.tensor(5)] * 4, "stream": [7, 8, 9, 10], "offset": [0, 3, 0, 64]}
        results = operator("quantize_int8_foreach")(xs, **numbers)
        assert cuda.launches() == ["kpop::list_quantize_int8<true>"]
    for i, offset in enumerate([0, 3, 0, 64]):
        expected = oracle.quantize_int8(xs[i], stream=7 + i, offset=offset, step=5)
        assert_same([result[i] for result in results], expected)


@pytest.mark.parametrize("numel", [1_000_003, LARGE])
def test_stochastic_rounding_of_millions_of_elements(numel):
    x = values(4, numel)
    with emulated() as cuda:
        rounded = run("stochastic_round_bf16", x, **KEY)
        assert cuda.launches() == ["kpop::stochastic_round"]
    assert_same(rounded, [oracle.stochastic_round_bf16(x, **KEY)])


@pytest.mark.parametrize("order", ORDERS)
def test_stochastic_round(order):
    largest = torch.finfo(torch.bfloat16).max
    extremes = torch.tensor(
        [largest, -largest, 3.4028e38, -3.4028e38, float("inf"), float("nan"), -0.0, 1e-45]
    )
    nans = torch.tensor([0x7FFFFFFF, 0x7F800001, -1, -0x7FFFFF]).to(torch.int32).view(torch.float32)
    inputs = [values(numel, numel) for numel in SIZES[:-1]]
    with emulated(order) as cuda:
        for i in range(24):
            key = {"seed": i * 0x9E3779B97F4A7C15 % 2**64, "step": i << 27, "stream": i << 26}
            rounded = run("stochastic_round_bf16", values(i, 3001), **key)
            assert_same(rounded, [oracle.stochastic_round_bf16(values(i, 3001), **key)])
        for x in [*inputs, torch.cat([awkward_tensor(), extremes.repeat(100), nans.repeat(30)])]:
            for offset in (0, 5, 2**35 - 3):
                key = {**KEY, "offset": offset}
                results = run("stochastic_round_bf16", x, **key)
                expected = oracle.stochastic_round_bf16(x, **key)
                assert torch.equal(results[0].view(torch.int16), expected.view(torch.int16))
        assert set(cuda.launches()) == {"kpop::stochastic_round"}


def test_a_step_from_elsewhere_is_passed_by_value(monkeypatch):
    x = values(1, 2000)
    for step in (torch.tensor(7), torch.tensor(7, dtype=torch.int32), torch.tensor(7.0)):
        with emulated():
            by_address = operator("quantize_int8")(x, step=step)
        elsewhere = native.Number(step, torch.int64, torch.device("meta"))
        assert (elsewhere.value, elsewhere.address) == (7, 0)
        with monkeypatch.context() as patch, emulated():
            patch.setattr(
                "kpop_kernels.backends.cuda.quantize_int8.Number", lambda *_, number=elsewhere: number
            )
            assert_same(operator("quantize_int8")(x, step=step), by_address)
        assert_same(by_address, oracle.quantize_int8(x, step=7))
