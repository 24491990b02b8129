"""Adam with 8-bit moments in Triton's interpreter, bit for bit against the oracle; planted bugs are found."""

from itertools import product

import pytest
import torch

from python_ref import quantize as oracle
from tests.emulation.triton import operators
from tests.ops.blocks import DTYPES, LARGE, assert_same, values
from tests.ops.launch import LAYOUTS, strided
from tests.ops.test_adam8 import CHANGES, awkward_arguments

pytestmark = pytest.mark.usefixtures("interpreted")

STATE = ("exp_avg_codes", "exp_avg_scales", "exp_avg_zero_points", "exp_avg_sq_codes", "exp_avg_sq_absmax")
SCALARS = {
    "lr": 0.01,
    "beta1": 0.9,
    "beta2": 0.99,
    "eps": 1e-8,
    "weight_decay": 0.1,
    "step": 7,
    "seed": 2**63,
    "stream": 3,
}
SIZES = (0, 1, 7, 255, 257, 2999)
LAUNCHES = ["adam_scalars_kernel", "adam8_kernel"]


def arguments(*shape, dtype=torch.float32, block_size=256):
    grad, old = values(1, *shape, dtype=dtype), values(2, *shape)
    state = (
        *oracle.quantize_int8(old, block_size=block_size),
        *oracle.quantize_dynamic8(old.square() * 0.7, block_size=block_size),
    )
    return {"param": values(3, *shape, dtype=dtype), "grad": grad} | dict(zip(STATE, state, strict=True))


def check(tensors, *, module=None, config=None, **changes):
    scalars = SCALARS | changes
    results = operators.run("adam8_", tensors, module=module, config=config, **scalars)
    param, grad, *state = tensors.values()
    expected = oracle.adam8(param, grad, oracle.Affine(*state[:3]), oracle.Dynamic(*state[3:]), **scalars)
    assert_same(results, (expected.param, *expected.exp_avg, *expected.exp_avg_sq))


@pytest.mark.parametrize(("block_size", "dtype"), list(product((24, 32, 256, 512, 2048), DTYPES)), ids=str)
def test_matches_the_oracle_in_every_bit(interpreted, block_size, dtype):
    for numel in SIZES:
        tensors = arguments(numel, dtype=dtype, block_size=block_size)
        check(tensors, block_size=block_size, seed=numel * block_size)
    assert interpreted[1:] == LAUNCHES * (len(SIZES) - 1)


@pytest.mark.parametrize("numel", [1_000_003, LARGE])
def test_millions_of_elements(numel):
    check(arguments(numel), config=operators.FEW_PROGRAMS)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_scalar(change):
    check(arguments(20, 61), **change)


@pytest.mark.parametrize("block_size", [8, 256])
def test_awkward_gradients(block_size):
    check(awkward_arguments(block_size), block_size=block_size)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_mixed_dtypes(dtype):
    tensors = arguments(1000)
    check(tensors | {"grad": tensors["grad"].to(dtype)})
    check(tensors | {"param": tensors["param"].to(dtype)})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strided_one", ["param", "grad", "exp_avg_codes", "exp_avg_sq_codes"])
def test_takes_any_strides(layout, strided_one):
    tensors = arguments(65, 33)
    check(tensors | {strided_one: strided(tensors[strided_one], layout)})


@pytest.mark.parametrize("found", [0.0, 1.0, float("nan")])
def test_found_inf_is_read_on_the_device(found):
    tensors = arguments(1000)
    results = operators.run("adam8_", tensors, found_inf=torch.tensor(found), **SCALARS)
    unchanged = torch.equal(results[0], tensors["param"])
    assert unchanged == (found != 0)
    if unchanged:
        assert_same(results[1:], [tensors[name] for name in STATE])


def test_nan_in_the_gradient_reaches_its_element_and_the_moments_of_its_block():
    tensors = arguments(1024)
    tensors["grad"][300] = float("nan")
    param, _, scales, _, _, absmax = operators.run("adam8_", tensors, **SCALARS)
    assert param.isnan().nonzero().tolist() == [[300]]
    assert scales.isnan().tolist() == absmax.isnan().tolist() == [False, True, False, False]


def test_step_and_rate_on_the_host_are_passed_by_value(monkeypatch, interpreted):
    for module in (
        operators.file_of("adam8_"),
        operators.imported("adam_scalars"),
        operators.imported("philox"),
    ):
        monkeypatch.setattr(module, "scalar_argument", lambda value, device: value.item())
    check(arguments(1000))
    assert interpreted == ["adam8_kernel"]


BUGS = [
    ("adam8", "if scalar_value(found_inf) != 0:", "if scalar_value(found_inf) == 0:"),
    ("adam_tile", "tl.where(N > limit, limit, N)", "tl.where(N > limit, N, limit)"),
    ("adam_tile", "tl.where(N < -limit, -limit, N)", "tl.maximum(N, -limit)"),
    ("adam8", "scalar_value(decay)", "1.0"),
    ("adam8", "        g = -g", "        g = g"),
    ("adam_tile", "sqrt_rn(v) + eps)", "sqrt_rn(v) - eps)"),
    ("adam8", "v * scalar_value(correction2)", "v * scalar_value(correction2) * scalar_value(correction2)"),
    ("adam8", "(beta1, 1 - beta1, beta2", "(beta2, 1 - beta1, beta1"),
    ("adam_scalars", "1.0 - rate * weight_decay", "1.0 - rate"),
    ("adam_scalars", "math.log(beta) if beta else -math.inf", "beta - 1"),
]


@pytest.mark.parametrize(("file", "old", "new"), BUGS, ids=[bug[2] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, file, old, new):
    broken = operators.mutated("adam8_", file, tmp_path, old, new)
    with pytest.raises(AssertionError, match="elements differ"):
        check(arguments(900), module=broken, eps=1e-3)
        check(arguments(900), module=broken, maximize=True, clip=0.1)
        tensors = arguments(900)
        tensors["grad"][300] = float("nan")
        check(tensors, module=broken)
