"""stochastic_round_bf16: the oracle's bits on every backend."""

import pytest
import torch

import kpop_kernels
from kpop_kernels import backends
from python_ref import quantize as oracle
from tests.ops.blocks import LARGE, SIZES, VARIANTS, assert_same, awkward_tensor, values
from tests.ops.launch import LAYOUTS, Launcher, assert_compiles, outcome, strided
from tests.ops.lists8 import with_tensors

KEY = {"seed": 0xFEDCBA9876543210, "step": 2**32 - 1, "stream": 7}


def check(variant, x, **key):
    key = KEY | key
    results = [Launcher("stochastic_round_bf16", variant)(x, **key)]
    assert_same(results, [oracle.stochastic_round_bf16(x, **key)])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("numel", [*SIZES, LARGE])
def test_matches_reference(variant, numel):
    check(variant, values(numel, numel))


@pytest.mark.parametrize("variant", VARIANTS)
def test_seeds_steps_and_streams(variant):
    for i in range(24):
        key = {"seed": i * 0x9E3779B97F4A7C15 % 2**64, "step": i << 27, "stream": i << 26}
        check(variant, values(i, 3001), **key)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("offset", [1, 8, 2**32 - 100, 2**35 - 3, 2**62])
def test_offsets_and_counter_carries(variant, offset):
    check(variant, values(3, 3000), offset=offset)


@pytest.mark.parametrize("variant", VARIANTS)
def test_awkward_values(variant):
    largest = torch.finfo(torch.bfloat16).max
    extremes = torch.tensor(
        [largest, -largest, 3.4028e38, -3.4028e38, float("inf"), float("nan"), -0.0, 1e-45]
    )
    nans = torch.tensor([0x7FFFFFFF, 0x7F800001, -1, -0x7FFFFF]).to(torch.int32).view(torch.float32)
    x = torch.cat([awkward_tensor(), extremes.repeat(1000), nans.repeat(100)])
    check(variant, x)
    rounded = Launcher("stochastic_round_bf16", variant)(x, **KEY)
    assert torch.equal(rounded.isfinite(), x.isfinite()) and torch.equal(rounded.isnan(), x.isnan())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_mean_is_the_value(variant):
    x = torch.tensor([1 + 2.0**-10, -3.0e-5, 1.7, 123456.0]).repeat_interleave(1 << 16)
    rounded = Launcher("stochastic_round_bf16", variant)(x, seed=1, step=2, stream=3)
    mean = rounded.double().reshape(4, -1).mean(1)
    unit = torch.ldexp(torch.ones(4), torch.frexp(x[:: 1 << 16]).exponent - 8).double()
    four_sigma = 4 * 0.5 * unit / 2**8
    assert ((mean - x[:: 1 << 16].double()).abs() <= four_sigma).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(variant, layout):
    x = values(9, 2, 65, 33)
    results = outcome(Launcher("stochastic_round_bf16", variant), {"x": strided(x, layout)}, (), **KEY)
    assert_same(results, [oracle.stochastic_round_bf16(x, **KEY)])
    out = strided(torch.zeros(2, 65, 33, dtype=torch.bfloat16), layout)
    assert Launcher("stochastic_round_bf16", variant)(x, out=out, **KEY) is out
    assert_same([out], [oracle.stochastic_round_bf16(x, **KEY)])


@pytest.mark.parametrize("variant", VARIANTS)
def test_lists_are_their_items(variant):
    xs = [values(i, *shape) for i, shape in enumerate([(5,), (3, 300), (0,)])]
    numbers = {"step": [2, 3, 2], "stream": [3, 4, 5], "offset": [0, 9, 0]}
    results = Launcher("stochastic_round_bf16_foreach", variant)(xs, seed=1, **with_tensors(numbers))
    for i, x in enumerate(xs):
        key = {name: column[i] for name, column in numbers.items()}
        assert_same([results[i]], [oracle.stochastic_round_bf16(x, seed=1, **key)])


def test_public_functions():
    xs = [values(i, 100) for i in range(2)]
    with backends.trace() as counter:
        many = kpop_kernels.stochastic_round_bf16_foreach(xs, seed=1, step=2, stream=3)
        one = [kpop_kernels.stochastic_round_bf16(x, seed=1, step=2, stream=3 + i) for i, x in enumerate(xs)]
    assert_same(many, one)
    served = backends.serving("stochastic_round_bf16", xs[0]).name
    assert counter == {("stochastic_round_bf16_foreach", served): 1, ("stochastic_round_bf16", served): 2}


def test_compiles():
    assert_compiles(
        kpop_kernels.stochastic_round_bf16, {"x": values(2, 5, 100)}, (), seed=1, step=3, stream=4
    )


REJECTED = {
    "bfloat16": (
        {"x": torch.ones(3).bfloat16()},
        TypeError,
        "x is torch.bfloat16, it must be torch.float32 to be",
    ),
    "seed": ({"seed": 2**64}, ValueError, f"seed is {2**64}, it must be an integer from 0 to {2**64 - 1}"),
}


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED.values(), ids=REJECTED)
def test_rejects(change, exception, message):
    with pytest.raises(exception, match="stochastic_round_bf16: .*" + message):
        kpop_kernels.stochastic_round_bf16(**({"x": torch.ones(3)} | KEY | change))
