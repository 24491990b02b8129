"""The Triton quantizer in the interpreter, bit for bit against numpy; planted bugs are found."""

import numpy as np
import pytest
import torch

from kpop_kernels.tuning import BlockwiseConfig
from tests.emulation.triton.absmax_quantize_oracle import absmax_quantize as oracle
from tests.emulation.triton.guarded import GuardedTensors, mutant

pytestmark = pytest.mark.usefixtures("interpreted")

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def normal(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def over_decades(n):
    return normal(n) * 10.0 ** (torch.arange(n) % 9 - 4)


def with_value(n, where, value):
    x = normal(n)
    x[where] = value
    return x


def near_ties(n):
    """Values half-way between two codes, as nearly as float32 has them; the scale is not a power of two."""
    x = (torch.arange(n) % 64 - 31.5) * 0.3
    x[::32] = 0.3 * 127
    return x


def beside_subnormals(n):
    """Half of the values are below 2⁻¹²⁶ and would still be worth a code."""
    x = torch.where(torch.arange(n) % 2 == 0, 0.9, 1.2) * 2.0**-126
    x[::32] = 127 * 1.2 * 2.0**-126
    return x


def check(module, x, block_size):
    """Run a host launcher between guard bands and compare every bit."""
    guarded = GuardedTensors()
    codes = guarded.output("codes", (x.numel(),), torch.int8)
    scales = guarded.output("scales", (-(-x.numel() // block_size),), torch.float32)
    module.absmax_quantize(guarded.tensor("x", x), block_size=block_size, out=(codes, scales))
    expected_codes, expected_scales = oracle(x.to(torch.float32).numpy(), block_size)
    np.testing.assert_array_equal(scales.numpy().view(np.int32), expected_scales.view(np.int32))
    np.testing.assert_array_equal(codes.numpy(), expected_codes)
    guarded.check()


@pytest.fixture
def kernels():
    from kpop_kernels.backends.triton import absmax_quantize

    return absmax_quantize


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("n", "block_size"),
    [
        pytest.param(4096, 32, id="whole-programs-smallest-block"),
        pytest.param(4096, 2048, id="whole-programs-largest-block"),
        pytest.param(2049, 256, id="last-block-has-one-element"),
        pytest.param(6007, 64, id="prime"),
        pytest.param(31, 32, id="less-than-a-block"),
        pytest.param(1, 2048, id="one-element"),
    ],
)
def test_matches_numpy_in_every_bit(kernels, interpreted, dtype, n, block_size):
    check(kernels, over_decades(n).to(dtype), block_size)
    assert interpreted == ["absmax_quantize_kernel"]


@pytest.mark.parametrize(
    "x",
    [
        pytest.param(torch.zeros(256), id="zeros"),
        pytest.param(-torch.zeros(256), id="negative-zeros"),
        pytest.param(torch.full((256,), -3.0), id="constant"),
        pytest.param(near_ties(256), id="near-ties"),
        pytest.param(with_value(256, 33, torch.nan), id="nan"),
        pytest.param(with_value(256, 33, -torch.inf), id="inf"),
        pytest.param(normal(256) * 1e38, id="near-overflow"),
        pytest.param(torch.full((256,), 1e-39), id="subnormal"),
        pytest.param(beside_subnormals(256), id="partly-subnormal"),
        pytest.param(with_value(256, slice(None), 2.0**-126), id="subnormal-scale"),
        pytest.param(torch.cat([normal(128), torch.full((128,), 2.0**-119)]), id="smallest-scale"),
    ],
)
def test_edge_values(kernels, x):
    check(kernels, x, 32)


def test_bad_block_leaves_its_neighbours_alone(kernels):
    x = normal(128)
    codes, scales = torch.empty(128, dtype=torch.int8), torch.empty(4)
    kernels.absmax_quantize(x, block_size=32, out=(codes, scales))
    poisoned_codes, poisoned_scales = torch.empty_like(codes), torch.empty_like(scales)
    x[40] = torch.nan
    kernels.absmax_quantize(x, block_size=32, out=(poisoned_codes, poisoned_scales))
    others = torch.tensor([0, 2, 3])
    assert torch.equal(scales[others], poisoned_scales[others])
    assert torch.equal(codes.view(4, 32)[others], poisoned_codes.view(4, 32)[others])


def test_takes_any_strides_and_leaves_the_input_unchanged(kernels):
    x = normal(24 * 40).view(24, 40).T
    before = x.clone()
    codes, scales = torch.empty(x.shape, dtype=torch.int8), torch.empty(30)
    kernels.absmax_quantize(x, block_size=32, out=(codes, scales))
    expected_codes, expected_scales = oracle(before.contiguous().view(-1).numpy(), 32)
    assert torch.equal(x, before)
    np.testing.assert_array_equal(codes.view(-1).numpy(), expected_codes)
    np.testing.assert_array_equal(scales.numpy(), expected_scales)


def test_nothing_is_launched_for_an_empty_tensor(kernels, interpreted):
    check(kernels, torch.empty(0), 32)
    assert interpreted == []


@pytest.mark.parametrize("block_size", [48, 0, 256])
def test_rejects_block_sizes_that_do_not_fit(kernels, block_size):
    with pytest.raises(ValueError, match=r"must be a power of two up to 128"):
        kernels.absmax_quantize(
            torch.ones(8),
            block_size=block_size,
            out=(torch.empty(8, dtype=torch.int8), torch.empty(1)),
            config=BlockwiseConfig(elements=128, num_warps=1),
        )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("offsets, inside)\n    # Mag", "offsets)\n    # Mag", id="load-without-mask"),
        pytest.param("codes, inside)", "codes)", id="store-without-mask"),
        pytest.param("scale, blocks * BLOCK_SIZE < n - first)", "scale)", id="scales-without-mask"),
        pytest.param("inside = offsets < n", "inside = offsets <= n", id="mask-one-too-wide"),
        pytest.param("offsets, inside)\n    # Mag", "(offsets ^ 1), inside)\n    # Mag", id="wrong-lane"),
        pytest.param("blocks[:, None] * BLOCK_SIZE", "blocks[:, None] * BLOCKS", id="wrong-row"),
        pytest.param("first // BLOCK_SIZE + blocks", "first // BLOCKS + blocks", id="wrong-scale-offset"),
        pytest.param("codes, scales, n)", "scales, codes, n)", id="arguments-swapped"),
        pytest.param("x * inv[:, None]", "tl.div_rn(x, scale[:, None])", id="divides-each-element"),
        pytest.param("tl.floor(x * inv[:, None] + 0.5)", "tl.floor(x * inv[:, None])", id="rounds-down"),
        pytest.param("usable = finite & (", "usable = (", id="nan-is-quantized"),
        pytest.param("x = tl.where(magnitude < SMALLEST_NORMAL_BITS, 0.0, x)", "", id="keeps-subnormals"),
    ],
)
def test_planted_bug_is_found(kernels, tmp_path, old, new):
    broken = mutant(kernels, tmp_path, {old: new})
    how = r"Arrays are not equal|OutOfBounds"
    with pytest.raises((AssertionError, broken.triton.runtime.errors.InterpreterError), match=how):
        for x in (
            over_decades(5000),
            near_ties(5000),
            beside_subnormals(5000),
            with_value(5000, 7, torch.inf),
        ):
            check(broken, x, 64)
