"""Stochastic rounding in Triton's interpreter, bit for bit against the oracle; planted bugs are found."""

import pytest
import torch

from python_ref import quantize as oracle
from tests.emulation.triton import operators
from tests.ops.blocks import LARGE, assert_same, awkward_tensor, values
from tests.ops.launch import LAYOUTS, strided

pytestmark = pytest.mark.usefixtures("interpreted")

KEY = {"seed": 2**64 - 1, "step": 2**32 - 1, "stream": 3}
LARGEST = torch.finfo(torch.bfloat16).max


def check(x, *, module=None, config=None, **key):
    (rounded,) = operators.run("stochastic_round_bf16", {"x": x}, module=module, config=config, **key)
    assert_same([rounded], [oracle.stochastic_round_bf16(x, **key)])


def extremes():
    """NaN with payloads in the bits that are cut, Inf, and the numbers around the largest bfloat16."""
    nans = torch.tensor([0x7F800001, 0x7FFFFFFF, -1, -0x7FFFFF], dtype=torch.int32).view(torch.float32)
    largest = torch.tensor([LARGEST, torch.finfo(torch.float32).max, torch.inf])
    below = torch.nextafter(largest, torch.zeros(3))
    return torch.cat([nans, largest, -largest, below, -below, torch.tensor([0.0, -0.0, 1e-45, -1e-45])])


@pytest.mark.parametrize("numel", [0, 1, 7, 255, 256, 257, 2049, 65_537])
def test_matches_the_oracle_in_every_bit(interpreted, numel):
    for seed in (numel, numel << 40, 2**64 - 1 - numel):
        check(values(1, numel), seed=seed, step=numel, stream=numel)
    assert interpreted == ["stochastic_round_bf16_kernel"] * (3 if numel else 0)


@pytest.mark.parametrize("numel", [1_000_003, LARGE])
def test_millions_of_elements(numel):
    check(values(4, numel), config=operators.FEW_PROGRAMS, **KEY)


@pytest.mark.parametrize("offset", [0, 1, 6, 2**32 - 100, 2**35 - 3, 2**63 - 4])
def test_extremes_and_offsets(offset):
    check(torch.cat([extremes(), awkward_tensor(8)]).repeat(8), offset=offset, **KEY)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_strides(layout):
    check(strided(values(7, 24, 50), layout), **KEY)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("& MAGNITUDE_BITS", "& -1", id="sign-in-the-magnitude"),
        pytest.param("magnitude > LARGEST_BF16_BITS", "magnitude > INFINITY_BITS", id="overflows-to-inf"),
        pytest.param("rounded | QUIET, rounded", "rounded, rounded", id="nan-becomes-inf"),
        pytest.param(">> 16", ">> 15", id="wrong-half"),
        pytest.param("x_ptr + first + offsets, inside", "x_ptr + first + offsets", id="load-without-mask"),
    ],
)
def test_planted_bug_is_found(tmp_path, old, new):
    broken = operators.mutated("stochastic_round_bf16", "stochastic_round", tmp_path, old, new)
    how = r"elements differ|OutOfBounds"
    with pytest.raises((AssertionError, broken.triton.runtime.errors.InterpreterError), match=how):
        check(values(1, 2500), module=broken, **KEY)
        check(extremes().repeat(100), module=broken, **KEY)
