"""adam8_: one pass with the oracle's bits, and Adam's convergence."""

from functools import cache

import pytest
import torch

import kpop_kernels
from kpop_kernels import backends
from python_ref import quantize as oracle
from tests.guards import bits
from tests.ops.blocks import DTYPES, LARGE, SIZES, VARIANTS, assert_same, awkward_tensor, values
from tests.ops.launch import CPU, LAYOUTS, Launcher, assert_compiles, outcome, strided
from tests.ops.lists8 import with_tensors

STATE = ("exp_avg_codes", "exp_avg_scales", "exp_avg_zero_points", "exp_avg_sq_codes", "exp_avg_sq_absmax")
WRITTEN = ("param", *STATE)
SCALARS = {
    "lr": 0.01,
    "beta1": 0.9,
    "beta2": 0.99,
    "eps": 1e-8,
    "weight_decay": 0.1,
    "step": 7,
    "seed": 2**63,
}


def arguments(*shape, dtype=torch.float32, block_size=256):
    grad, old = values(1, *shape, dtype=dtype), values(2, *shape)
    state = (
        *oracle.quantize_int8(old, block_size=block_size),
        *oracle.quantize_dynamic8(old.square() * 0.7, block_size=block_size),
    )
    return {"param": values(3, *shape, dtype=dtype), "grad": grad} | dict(zip(STATE, state, strict=True))


def zero_state(numel, block_size=256):
    blocks = -(-numel // block_size)
    codes = torch.zeros(numel, dtype=torch.uint8)
    return [codes, torch.zeros(blocks), torch.zeros(blocks).byte(), codes.clone(), torch.zeros(blocks)]


def expected(tensors, **scalars):
    param, grad, *state = tensors.values()
    exp_avg, exp_avg_sq = oracle.Affine(*state[:3]), oracle.Dynamic(*state[3:])
    result = oracle.adam8(param, grad, exp_avg, exp_avg_sq, **scalars)
    return result.param, *result.exp_avg, *result.exp_avg_sq


def assert_matches(variant, results, oracles):
    """Moments bit for bit; parameters too, but for aten's square root, which may be one unit off."""
    assert_same(results[1:], oracles[1:])
    if variant in CPU:
        assert_same(results[:1], oracles[:1])
    else:
        rtol = 2**-7 if oracles[0].dtype != torch.float32 else 1e-6
        torch.testing.assert_close(results[0], oracles[0], rtol=rtol, atol=1e-8, equal_nan=True)


def check(variant, tensors, **scalars):
    scalars = {"stream": 3, **SCALARS, **scalars}
    results = outcome(Launcher("adam8_", variant), tensors, WRITTEN, **scalars)
    assert_matches(variant, results, expected(tensors, **scalars))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block_size", [8, 32, 64, 256, 264, 512, 4096])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matches_reference(variant, block_size, dtype):
    for numel in (0, 1, 7, 255, 256, 257, 5000):
        key = {"seed": block_size << 40 | numel, "step": 1 + numel, "stream": block_size}
        check(variant, arguments(numel, dtype=dtype, block_size=block_size), block_size=block_size, **key)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("numel", SIZES[6:])
def test_large_tensors(variant, numel):
    check(variant, arguments(numel), offset=2**32 - 8 * 1000 + 3)


CHANGES = [
    {"maximize": True},
    {"weight_decay": 0.0},
    {"step": 1},
    {"step": 10**6},
    {"beta1": 0.0},
    {"beta1": 0.95, "beta2": 0.95},
    {"beta1": 0.99, "beta2": 0.9},
    {"clip": 0.5},
    {"clip": float("inf")},
    {"eps": 1e-3},
    {"offset": 2**35 - 3},
]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_scalar(variant, change):
    check(variant, arguments(50, 61), **change)


@pytest.mark.parametrize("variant", VARIANTS)
def test_mixed_dtypes(variant):
    for dtype in DTYPES:
        tensors = arguments(1000)
        check(variant, tensors | {"grad": tensors["grad"].to(dtype)})
        check(variant, tensors | {"param": tensors["param"].to(dtype)})


def awkward_arguments(block_size=256):
    """Gradients of every awkward kind beside plain ones, and moments of which one block of each is poisoned."""
    grad = awkward_tensor(block_size)
    tensors = arguments(grad.numel(), block_size=block_size) | {"grad": grad}
    for name in ("exp_avg_scales", "exp_avg_sq_absmax"):
        tensors[name][3] = float("nan")
    return tensors


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block_size", [8, 256])
def test_awkward_gradients_leave_other_blocks_alone(variant, block_size):
    tensors = awkward_arguments(block_size)
    check(variant, tensors, block_size=block_size)
    results = outcome(
        Launcher("adam8_", variant), tensors, WRITTEN, stream=3, block_size=block_size, **SCALARS
    )
    finite = results[0].reshape(-1, block_size).isfinite().all(1)
    assert finite[1::2].tolist() == [i != 1 for i in range(len(finite) // 2)]


@cache
def expected_of_eight_million():
    tensors = arguments(LARGE)
    return tensors, expected(tensors, stream=3, **SCALARS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_eight_million_elements(variant):
    tensors, oracles = expected_of_eight_million()
    results = {name: tensor.clone() for name, tensor in tensors.items()}
    Launcher("adam8_", variant)(*results.values(), stream=3, **SCALARS)
    assert_matches(variant, [results[name] for name in WRITTEN], oracles)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strided_one", ["param", "grad", "exp_avg_codes", "exp_avg_sq_codes"])
def test_layouts(variant, layout, strided_one):
    tensors = arguments(65, 33)
    check(variant, tensors | {strided_one: strided(tensors[strided_one], layout)})


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_found_inf_decides_whether_anything_changes(variant, found):
    tensors = arguments(1000)
    scalars = {"stream": 3, **SCALARS}
    results = outcome(Launcher("adam8_", variant), tensors, WRITTEN, found_inf=torch.tensor(found), **scalars)
    if found:
        assert_same(results, [tensors[name] for name in WRITTEN])
    else:
        assert_matches(variant, results, expected(tensors, **scalars))


@pytest.mark.parametrize("variant", VARIANTS)
def test_nan_in_the_gradient_reaches_its_element_and_the_moments_of_its_block(variant):
    tensors = arguments(1024)
    tensors["grad"][300] = float("nan")
    param, _, scales, _, _, absmax = outcome(
        Launcher("adam8_", variant), tensors, WRITTEN, stream=3, **SCALARS
    )
    assert param.isnan().nonzero().tolist() == [[300]]
    assert scales.isnan().tolist() == absmax.isnan().tolist() == [False, True, False, False]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_zero_gradient_changes_no_bit_of_its_weight_in_500_steps(variant):
    grad = torch.tensor([1.0, 0.0]).repeat(128)
    param, state = values(5, 256), zero_state(256)
    before = bits(param).clone()
    for step in range(1, 501):
        scalars = SCALARS | {"step": step, "weight_decay": 0.0, "lr": 1e-3}
        Launcher("adam8_", variant)(param, grad, *state, stream=0, **scalars)
    assert torch.equal(bits(param)[1::2], before[1::2])
    assert (param - before.view(torch.float32))[::2].allclose(torch.full((128,), -0.5), atol=0.02)


@pytest.mark.parametrize("variant", VARIANTS)
def test_small_gradients_beside_large_ones_do_not_fly_away(variant):
    # An element whose second moment is kept as 0 may keep a first moment of a whole step.
    generator = torch.Generator().manual_seed(0)
    scale = 10 ** torch.linspace(-6, 0, 256)
    param, state, lr = torch.zeros(256), zero_state(256), 1e-3
    for step in range(1, 101):
        grad = torch.randn(256, generator=generator) * scale
        before = param.clone()
        scalars = SCALARS | {"beta1": 0.95, "beta2": 0.95, "step": step, "weight_decay": 0.0, "lr": lr}
        Launcher("adam8_", variant)(param, grad, *state, stream=0, **scalars)
        assert (param - before).abs().max() <= lr * (1 + 1e-3)


def test_without_the_limit_they_would():
    scale = 10 ** torch.linspace(-6, 0, 256)
    generator = torch.Generator().manual_seed(0)
    param, state = torch.zeros(256), zero_state(256)
    for step in range(1, 101):
        grad = torch.randn(256, generator=generator) * scale
        scalars = SCALARS | {"beta1": 0.95, "beta2": 0.95, "step": step, "weight_decay": 0.0, "lr": 1e-3}
        kpop_kernels.adam8_(param, grad, *state, stream=0, clip=float("inf"), **scalars)
    assert param.abs().max() > 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_converges_like_adam_in_float32(variant):
    target = values(7, 2048).clamp(-1, 1)
    param, exact = torch.zeros(2048), torch.nn.Parameter(torch.zeros(2048))
    state = zero_state(2048)
    optimizer = torch.optim.AdamW([exact], lr=0.01, betas=(0.9, 0.99), weight_decay=0.0)
    for step in range(1, 201):
        scalars = SCALARS | {"step": step, "weight_decay": 0.0}
        Launcher("adam8_", variant)(param, param - target, *state, stream=0, **scalars)
        exact.grad = exact.detach() - target
        optimizer.step()
    ours, theirs = ((p.detach() - target).norm() / target.norm() for p in (param, exact))
    assert ours <= theirs + 0.03


@pytest.mark.parametrize("variant", VARIANTS)
def test_lists_are_their_items(variant):
    items = [arguments(*shape) for shape in [(5,), (3, 300), (0,)]]
    lists = [[item[name].clone() for item in items] for name in items[0]]
    numbers = {"step": [7, 2, 7], "stream": [4, 5, 6], "offset": [0, 8, 0]}
    Launcher("adam8_foreach_", variant)(*lists, **SCALARS | with_tensors(numbers), found_inf=[None] * 3)
    for i, item in enumerate(items):
        results = [column[i] for name, column in zip(item, lists, strict=True) if name != "grad"]
        scalars = SCALARS | {name: column[i] for name, column in numbers.items()}
        assert_matches(variant, results, expected(item, **scalars))


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_item_whose_gradient_is_not_finite_stays(variant):
    items = [arguments(300) for _ in range(3)]
    lists = [[item[name].clone() for item in items] for name in items[0]]
    found = [torch.tensor(0.0), torch.tensor(1.0), None]
    numbers = with_tensors({"step": [7] * 3, "stream": [4] * 3, "offset": [0] * 3})
    Launcher("adam8_foreach_", variant)(*lists, **SCALARS | numbers, found_inf=found)
    assert_same([column[1] for column in lists], list(items[1].values()))
    assert_same([column[0] for column in lists], [column[2] for column in lists])
    assert not torch.equal(lists[0][0], items[0]["param"])


def test_public_functions_give_the_default_limit_and_count_streams():
    items = [arguments(100), arguments(300)]
    one = [[tensor.clone() for tensor in item.values()] for item in items]
    many = [[item[name].clone() for item in items] for name in items[0]]
    with backends.trace() as counter:
        for i, tensors in enumerate(one):
            assert kpop_kernels.adam8_(*tensors, stream=2 + i, **SCALARS) is tensors[0]
        kpop_kernels.adam8_foreach_(*many, stream=2, **SCALARS | {"step": [7, 7]}, found_inf=[None, None])
    served = backends.serving("adam8_", items[0]["param"]).name
    assert counter == {("adam8_", served): 2, ("adam8_foreach_", served): 1}
    for i, item in enumerate(items):
        assert_same(one[i], [column[i] for column in many])
        limit = oracle.adam_bound(SCALARS["beta1"], SCALARS["beta2"])
        results = [tensor for name, tensor in zip(item, one[i], strict=True) if name != "grad"]
        assert_matches(served, results, expected(item, stream=2 + i, clip=limit, **SCALARS))


def test_compiles():
    scalars = SCALARS | {"seed": 5}
    assert_compiles(kpop_kernels.adam8_, arguments(5, 100), WRITTEN, stream=3, **scalars)


REJECTED = {
    "grad shape": (
        {"grad": torch.ones(3)},
        ValueError,
        r"grad has shape \(3,\), it must be \(300,\) like param",
    ),
    "absmax": (
        {"exp_avg_sq_absmax": torch.ones(1)},
        ValueError,
        r"exp_avg_sq_absmax has shape \(1,\), it must be",
    ),
    "beta1": ({"beta1": 1.0}, ValueError, "beta1 is 1.0, it must be at least 0 and below 1"),
    "eps": ({"eps": -1.0}, ValueError, "eps is -1.0, it must not be negative"),
    "clip": ({"clip": -1.0}, ValueError, "clip is -1.0, it must not be negative"),
    "lr": ({"lr": torch.ones(2)}, ValueError, r"lr has shape \(2,\), it must be a number or a 0-d tensor"),
}


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED.values(), ids=REJECTED)
def test_rejects(change, exception, message):
    with pytest.raises(exception, match="adam8_: .*" + message):
        kpop_kernels.adam8_(**(arguments(300) | {"stream": 0} | SCALARS | change))


def test_rejects_moments_that_share_memory():
    tensors = arguments(300)
    tensors["exp_avg_sq_codes"] = tensors["exp_avg_codes"]
    with pytest.raises(ValueError, match="exp_avg_codes is written and shares memory with exp_avg_sq_codes"):
        kpop_kernels.adam8_(**tensors, stream=0, **SCALARS)
