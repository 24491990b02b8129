"""quantize_dynamic8 and dequantize_dynamic8 of the CUDA backend, emulated: the oracle's bits."""

from itertools import product

import pytest
import torch

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
    assert_same,
    awkward_tensor,
    values,
)
from tests.ops.launch import LAYOUTS, strided

ORDERS = cuda_emulator.ORDERS


@pytest.fixture(autouse=True)
def compiler(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())


def check(cuda, x, **options):
    cuda.launches()
    expected = oracle.quantize_dynamic8(x, **options)
    assert_same(run("quantize_dynamic8", x, **options), expected)
    size = {**options, "dtype": x.dtype}
    assert_same(
        run("dequantize_dynamic8", *expected, **size), [oracle.dequantize_dynamic8(*expected, **size)]
    )
    sign = str(options.get("signed", False)).lower()
    ran = [f"kpop::quantize_dynamic8<{sign}>", "kpop::dequantize_dynamic8"]
    assert cuda.launches() == ran * (x.numel() > 0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("signed", [False, True])
def test_matches_reference(signed, order):
    with emulated(order, seed=3) as cuda:
        for seed, (block_size, numel) in enumerate(product((*BLOCK_SIZES, *ODD_BLOCK_SIZES), SIZES[:-2])):
            check(cuda, values(seed, numel, dtype=DTYPES[seed % 3]), block_size=block_size, signed=signed)
        for block_size in (32, 256, 2048):
            check(cuda, values(1, 65_537).abs(), block_size=block_size, signed=signed)


@pytest.mark.parametrize("signed", [False, True])
def test_midpoints_and_their_neighbours(signed):
    table = torch.from_numpy(oracle.dynamic_map(signed))
    middle = (table[:-1] + table[1:]) * 0.5
    infinity = torch.tensor(float("inf"))
    x = torch.cat([torch.ones(1), middle, middle.nextafter(infinity), middle.nextafter(-infinity), table])
    with emulated() as cuda:
        check(cuda, x, block_size=1024, signed=signed)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("signed", [False, True])
def test_awkward_blocks_leave_the_others_alone(signed, order):
    with emulated(order) as cuda:
        for block_size in (8, 64, 256, 264, 2048):
            check(cuda, awkward_tensor(block_size), block_size=block_size, signed=signed)


def test_products_below_the_smallest_normal_are_zero():
    codes = torch.arange(256, dtype=torch.uint8).repeat(5)
    absmax = torch.tensor([2.0**-126, -(2.0**-120), 1e-45, 0.0, float("nan")])
    with emulated():
        for signed in (False, True):
            restored = run("dequantize_dynamic8", codes, absmax, signed=signed)
            assert_same(restored, [oracle.dequantize_dynamic8(codes, absmax, signed=signed)])


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("numel", [1_000_003, LARGE])
def test_millions_of_elements(numel, signed):
    x = values(98, numel)
    with emulated() as cuda:
        check(cuda, x if signed else x.square(), signed=signed)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_strides(layout):
    x = values(9, 24, 50)
    expected = oracle.quantize_dynamic8(x, block_size=32)
    with emulated():
        assert_same(run("quantize_dynamic8", strided(x, layout), block_size=32), expected)
        codes = strided(expected.codes, layout)
        restored = run("dequantize_dynamic8", codes, expected.absmax, block_size=32)
    assert_same(restored, [oracle.dequantize_dynamic8(*expected, block_size=32)])


def test_any_address_is_served():
    memory = values(7, 5001)
    with emulated():
        assert_same(operator("quantize_dynamic8")(memory[1:]), oracle.quantize_dynamic8(memory[1:]))
