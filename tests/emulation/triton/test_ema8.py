"""Averages in 8-bit blocks in Triton's interpreter, bit for bit against the oracle; planted bugs are found."""

from itertools import cycle

import pytest
import torch

from python_ref import quantize as oracle
from tests.emulation.triton import operators
from tests.ops.blocks import BLOCK_SIZES, DTYPES, LARGE, assert_same, awkward_tensor, values
from tests.ops.launch import LAYOUTS, strided

pytestmark = pytest.mark.usefixtures("interpreted")

KEY = {"seed": 2**63, "step": 9, "stream": 4}
GRID = list(zip((24, *BLOCK_SIZES), cycle(DTYPES), strict=False))
SIZES = (0, 1, 7, 255, 256, 257, 2999)


def check_ema_int8(x, *, block_size=256, layout="contiguous", module=None, config=None, **options):
    old = oracle.quantize_int8(values(1, *x.shape), block_size=block_size)
    tensors = old._asdict() | {"x": x}
    tensors["codes"] = strided(old.codes, layout)
    options = {"beta": 0.9, "block_size": block_size, **KEY, **options}
    results = operators.run("ema_int8_", tensors, module=module, config=config, **options)
    mean, expected = oracle.ema_int8(old, x, **options)
    assert_same(results, (mean, *expected))


def check_ema_sq_dynamic8(x, *, block_size=256, layout="contiguous", module=None, config=None, beta=0.99):
    old = oracle.quantize_dynamic8(values(1, *x.shape).square(), block_size=block_size)
    tensors = {"codes": strided(old.codes, layout), "absmax": old.absmax, "x": x}
    options = {"beta": beta, "block_size": block_size}
    results = operators.run("ema_sq_dynamic8_", tensors, module=module, config=config, **options)
    mean, expected = oracle.ema_sq_dynamic8(old, x, **options)
    assert_same(results, (mean, *expected))


CHECKS = {"ema_int8_": check_ema_int8, "ema_sq_dynamic8_": check_ema_sq_dynamic8}


@pytest.mark.parametrize("op", CHECKS)
@pytest.mark.parametrize(("block_size", "dtype"), GRID, ids=str)
def test_matches_the_oracle_in_every_bit(interpreted, op, block_size, dtype):
    for numel in SIZES:
        key = {"seed": block_size << 40 | numel, "step": numel} if op == "ema_int8_" else {}
        CHECKS[op](values(block_size + numel, numel, dtype=dtype), block_size=block_size, **key)
    assert interpreted == [f"{op}kernel"] * (len(SIZES) - 1)


@pytest.mark.parametrize("numel", [1_000_003, LARGE])
@pytest.mark.parametrize("op", CHECKS)
def test_millions_of_elements(op, numel):
    CHECKS[op](values(2, numel), config=operators.FEW_PROGRAMS)


@pytest.mark.parametrize("op", CHECKS)
@pytest.mark.parametrize("beta", [0.0, 0.5, 1 - 1e-7])
def test_beta(op, beta):
    CHECKS[op](values(3, 1000), beta=beta)


@pytest.mark.parametrize("op", CHECKS)
@pytest.mark.parametrize("block_size", [8, 256])
def test_awkward_blocks(op, block_size):
    CHECKS[op](awkward_tensor(block_size), block_size=block_size)


@pytest.mark.parametrize("op", CHECKS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_strides(op, layout):
    CHECKS[op](values(4, 24, 50), layout=layout)
    CHECKS[op](strided(values(5, 24, 50), layout))


@pytest.mark.parametrize("offset", [5, 2**32, 2**35 - 3])
def test_offsets(offset):
    check_ema_int8(values(6, 3000), block_size=64, offset=offset)


def test_a_missing_element_does_not_widen_its_block():
    """The old zero point is 3/4 of the way up, so code 0 of an element that is not there is a large number."""
    old = oracle.quantize_int8(torch.tensor([-3.0, 1.0, 0.5]))
    x = torch.tensor([0.1, 0.2, 0.3])
    results = operators.run("ema_int8_", old._asdict() | {"x": x}, beta=0.5, **KEY)
    mean, expected = oracle.ema_int8(old, x, beta=0.5, **KEY)
    assert_same(results, (mean, *expected))


BUGS = [
    ("ema_int8_", "moments", "mean = tl.where(inside, mean, 0.0)", "mean = mean"),
    ("ema_int8_", "moments", "flush(mean)", "flush(x)"),
    ("ema_int8_", "moments", "beta * affine_values(codes, scale, zero_point) + one_minus_beta * x",
     "tl.fma(affine_values(codes, scale, zero_point), tl.zeros_like(x) + beta, one_minus_beta * x)"),
    ("ema_int8_", "ema8", "n, beta, 1 - beta, *random)", "n, 1 - beta, beta, *random)"),
    ("ema_int8_", "ema8", "x.contiguous(), mean, n, beta, 1 - beta, *random",
     "mean, x.contiguous(), n, beta, 1 - beta, *random"),
    ("ema_sq_dynamic8_", "moments", "(one_minus_beta * x) * x", "one_minus_beta * (x * x)"),
    ("ema_sq_dynamic8_", "moments", "block_absmax(mean)", "block_absmax(x)"),
    ("ema_sq_dynamic8_", "moments", "blocks, absmax, exist)", "blocks, absmax)"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "file", "old", "new"), BUGS, ids=[bug[3] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, op, file, old, new):
    broken = operators.mutated(op, file, tmp_path, old, new)
    how = r"elements differ|OutOfBounds|it is only an input"
    with pytest.raises((AssertionError, broken.triton.runtime.errors.InterpreterError), match=how):
        for numel in range(1, 4000, 499):
            CHECKS[op](values(numel, numel), module=broken, block_size=64)
