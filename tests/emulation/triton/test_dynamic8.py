"""The dynamic map in Triton's interpreter, bit for bit against the oracle; planted bugs are found."""

from itertools import product

import pytest
import torch

from kpop_kernels.codebooks import dynamic_midpoints
from python_ref import quantize as oracle
from tests.emulation.triton import operators
from tests.emulation.triton.operators import FEW_PROGRAMS
from tests.ops.blocks import BLOCK_SIZES, DTYPES, LARGE, ODD_BLOCK_SIZES, assert_same, awkward_tensor, values
from tests.ops.launch import LAYOUTS, strided

pytestmark = pytest.mark.usefixtures("interpreted")

SIZES = (0, 1, 7, 255, 256, 257, 2999)


def check(x, dtype=torch.float32, *, signed=False, block_size=256, module=None, config=None):
    """Compare codes, absmax and restored values with the oracle's."""
    options = {"signed": signed, "block_size": block_size}
    where = {"module": module, "config": config}
    expected = oracle.quantize_dynamic8(x, **options)
    assert_same(operators.run("quantize_dynamic8", {"x": x}, **where, **options), expected)
    restored = operators.run("dequantize_dynamic8", expected._asdict(), **where, dtype=dtype, **options)
    assert_same(restored, [oracle.dequantize_dynamic8(*expected, dtype=dtype, **options)])


def around_midpoints(signed):
    """Blocks of absmax 1 that hold every midpoint of the map and the float32 numbers beside it."""
    middle = dynamic_midpoints(signed)
    y = torch.cat([middle, torch.nextafter(middle, middle + 1), torch.nextafter(middle, middle - 1)])
    rows = torch.nn.functional.pad(y, (0, -y.numel() % 31)).reshape(-1, 31)
    return torch.cat([torch.ones(len(rows), 1), rows], 1)


@pytest.mark.parametrize(("block_size", "dtype"), list(product(BLOCK_SIZES, DTYPES)), ids=str)
def test_matches_the_oracle_in_every_bit(interpreted, block_size, dtype):
    for i, numel in enumerate(SIZES):
        x = values(block_size + numel, numel, dtype=dtype)
        check(x, dtype, signed=(i + DTYPES.index(dtype)) % 2 == 1, block_size=block_size)
    launched = ["quantize_dynamic8_kernel", "dequantize_dynamic8_kernel"]
    assert interpreted == launched * (len(SIZES) - 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_programs(dtype):
    check(values(3, 65_537, dtype=dtype), dtype)


@pytest.mark.parametrize("numel", [1_000_003, LARGE])
@pytest.mark.parametrize("signed", [False, True])
def test_millions_of_elements(signed, numel):
    check(values(4, numel), signed=signed, config=FEW_PROGRAMS)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("block_size", ODD_BLOCK_SIZES)
def test_every_multiple_of_8_is_a_block_size(block_size, signed):
    for dtype, numel in zip(DTYPES, (1, 255, 5000), strict=True):
        check(values(numel, numel, dtype=dtype), dtype, signed=signed, block_size=block_size)


@pytest.mark.parametrize("signed", [False, True])
def test_ties_go_to_the_lower_code(signed):
    check(around_midpoints(signed), signed=signed, block_size=32)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("block_size", [8, 256])
def test_awkward_blocks(block_size, signed):
    check(awkward_tensor(block_size), signed=signed, block_size=block_size)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_strides(layout):
    x = strided(values(7, 24, 50), layout)
    check(x)
    codes, absmax = oracle.quantize_dynamic8(x)
    (restored,) = operators.run("dequantize_dynamic8", {"codes": strided(codes, layout), "absmax": absmax})
    assert_same([restored], [oracle.dequantize_dynamic8(codes, absmax)])


BUGS = [
    ("load without mask", "dynamic8", "x_ptr + first + offsets, inside)", "x_ptr + first + offsets)"),
    ("absmax without mask", "dynamic8", "blocks, absmax, exist)", "blocks, absmax)"),
    ("map and codes swapped", "dynamic8", "(*inputs, result, n)", "(*inputs[::2], inputs[1], result, n)"),
    ("tie to the upper code", "dynamic", "codes = below + (place > bucket >> 8)",
     "codes = below + (place >= bucket >> 8)"),
    ("negative tie to the upper code", "dynamic", "place + negative.to(tl.int32) > bucket", "place > bucket"),
    ("minus one has a code", "dynamic", "tl.maximum(LARGEST_NEGATIVE - index, 0)", "LARGEST_NEGATIVE - index"),
    ("sign ignored", "dynamic", "bits & MAGNITUDE_BITS if SIGNED else bits", "bits & MAGNITUDE_BITS"),
    ("outside the table", "dynamic", "tl.maximum(magnitude, SMALLEST_BITS)", "magnitude"),
    ("no scaling near overflow", "dynamic", "tl.where(absmax >= 2.0**126, 2.0**-8, 1.0)", "absmax * 0.0 + 1.0"),
    ("divides each element", "dynamic", "flush(x) * prescale[:, None] * inverse[:, None]",
     "tl.div_rn(flush(x), absmax[:, None])"),
    ("NaN is quantized", "dynamic", "usable = finite & (", "usable = ("),
    ("absmax with sign", "dynamic", "magnitude = x.to(tl.int32, bitcast=True) & MAGNITUDE_BITS",
     "magnitude = x.to(tl.int32, bitcast=True)"),
    ("subnormal results", "dynamic", "flush(load_operand(values_ptr + codes.to(tl.int32)) * absmax[:, None])",
     "load_operand(values_ptr + codes.to(tl.int32)) * absmax[:, None]"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new"), [bug[1:] for bug in BUGS], ids=[bug[0] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, file, old, new):
    broken = operators.mutated("quantize_dynamic8", file, tmp_path, old, new)
    how = r"elements differ|OutOfBounds"
    with pytest.raises((AssertionError, broken.triton.runtime.errors.InterpreterError), match=how):
        for signed in (False, True):
            check(values(1, 4999), module=broken, signed=signed, block_size=64)
            check(around_midpoints(signed), module=broken, signed=signed, block_size=32)
            for absmax in (0.3, 1.97 * 2.0**127):
                check(absmax * around_midpoints(signed), module=broken, signed=signed, block_size=32)
            check(awkward_tensor(64), module=broken, signed=signed, block_size=64)
            check(-values(2, 64).abs(), module=broken, signed=signed, block_size=64)
            check(torch.tensor([2.0**-120, 2.0**-126]), module=broken, signed=signed)
            check(values(3, 2**18), module=broken, signed=signed, config=FEW_PROGRAMS)
