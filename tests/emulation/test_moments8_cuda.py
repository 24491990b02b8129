"""ema_int8_, ema_sq_dynamic8_ and adam8_ of the CUDA backend, emulated: the oracle's bits, parameters too."""

from itertools import product

import pytest
import torch

from kpop_kernels.backends.cuda import native
from python_ref import quantize as oracle
from tests.emulation import cuda_emulator
from tests.emulation.cuda_backend import emulated, operator, run
from tests.emulation.tools import require_tool
from tests.ops.blocks import BLOCK_SIZES, DTYPES, LARGE, SIZES, assert_same, awkward_tensor, values
from tests.ops.launch import LAYOUTS, strided
from tests.ops.test_adam8 import CHANGES, awkward_arguments

ORDERS = cuda_emulator.ORDERS
KEY = {"seed": 2**64 - 3, "step": 7, "stream": 3}
ADAM = {**KEY, "lr": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}


@pytest.fixture(autouse=True)
def compiler(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())


def moments(x, block_size):
    old = values(2, x.numel()).reshape(x.shape)
    return (
        oracle.quantize_int8(old, block_size=block_size),
        oracle.quantize_dynamic8(old.square() * 0.7, block_size=block_size),
    )


def check_averages(cuda, x, block_size=256, beta=0.9, **key):
    m, v = moments(x, block_size)
    scalars = {"beta": beta, "block_size": block_size, **KEY, **key}
    cuda.launches()
    *blocks, average = run("ema_int8_", *m, x, **scalars)
    expected, expected_blocks = oracle.ema_int8(m, x, **scalars)
    assert_same([average, *blocks], [expected, *expected_blocks])
    *blocks, average = run("ema_sq_dynamic8_", *v, x, beta=beta, block_size=block_size)
    expected, expected_blocks = oracle.ema_sq_dynamic8(v, x, beta=beta, block_size=block_size)
    assert_same([average, *blocks], [expected, *expected_blocks])
    assert cuda.launches() == ["kpop::ema_int8", "kpop::ema_sq_dynamic8"] * (x.numel() > 0)


def check_adam(cuda, param, grad, **scalars):
    scalars = {**ADAM, **scalars}
    m, v = moments(param, scalars.get("block_size", 256))
    expected = oracle.adam8(param, grad, m, v, **scalars)
    cuda.launches()
    results = run("adam8_", param, grad, *m, *v, **scalars)
    assert cuda.launches() == ["kpop::adam8"] * (param.numel() > 0)
    assert_same(results, [expected.param, *expected.exp_avg, *expected.exp_avg_sq])


@pytest.mark.parametrize("order", ORDERS)
def test_averages_match_the_reference(order):
    with emulated(order) as cuda:
        for seed, (block_size, numel) in enumerate(product((*BLOCK_SIZES, 8, 264, 4096), SIZES[:-2])):
            x = values(seed, numel, dtype=DTYPES[seed % 3])
            check_averages(cuda, x, block_size, beta=(0.0, 0.9, 0.999)[seed % 3], seed=seed, step=seed + 1)
        check_averages(cuda, values(3, 65_537), offset=2**35 - 3)


@pytest.mark.parametrize("order", ORDERS)
def test_averages_of_awkward_blocks(order):
    with emulated(order) as cuda:
        for block_size in (8, 256, 2048):
            check_averages(cuda, awkward_tensor(block_size), block_size)


@pytest.mark.parametrize("order", ORDERS)
def test_adam_with_awkward_gradients(order):
    with emulated(order):
        for block_size in (8, 256, 2048):
            tensors = awkward_arguments(block_size)
            scalars = {**ADAM, "block_size": block_size}
            param, grad, *state = tensors.values()
            expected = oracle.adam8(
                param, grad, oracle.Affine(*state[:3]), oracle.Dynamic(*state[3:]), **scalars
            )
            results = run("adam8_", *tensors.values(), **scalars)
            assert_same(results, [expected.param, *expected.exp_avg, *expected.exp_avg_sq])


@pytest.mark.parametrize("order", ORDERS)
def test_adam_matches_the_reference(order):
    with emulated(order) as cuda:
        for seed, (block_size, numel) in enumerate(product((*BLOCK_SIZES, 8, 264, 4096), SIZES[:-2])):
            dtypes = DTYPES[seed % 3], DTYPES[seed // 3 % 3]
            param, grad = (values(seed + i, numel, dtype=dtype) for i, dtype in enumerate(dtypes))
            check_adam(cuda, param, grad, block_size=block_size, seed=seed)
        check_adam(cuda, values(1, 65_537), values(2, 65_537))


@pytest.mark.parametrize("change", [*CHANGES, {"lr": 0.3}], ids=str)
def test_every_scalar_of_adam(change):
    with emulated() as cuda:
        check_adam(cuda, values(4, 50, 61), values(5, 50, 61), **change)


def test_found_inf_decides_whether_anything_changes():
    param, grad = values(4, 3000), values(5, 3000)
    m, v = moments(param, 256)
    with emulated() as cuda:
        for found in (torch.tensor(1.0), torch.tensor(True), torch.tensor(float("nan"))):
            assert_same(run("adam8_", param, grad, *m, *v, **ADAM, found_inf=found), [param, *m, *v])
        assert cuda.launches() == ["kpop::adam8"] * 3
        changed = run("adam8_", param, grad, *m, *v, **ADAM, found_inf=torch.tensor(0.0))[0]
    assert_same([changed], [oracle.adam8(param, grad, m, v, **ADAM).param])


def test_numbers_from_elsewhere_are_passed_by_value(monkeypatch):
    elsewhere = lambda number, dtype, device: native.Number(number, dtype, torch.device("meta"))
    monkeypatch.setattr("kpop_kernels.backends.cuda.adam8.Number", elsewhere)
    with emulated() as cuda:
        check_adam(cuda, values(4, 3000), values(5, 3000))
        param, grad = values(4, 300), values(5, 300)
        m, v = moments(param, 256)
        unchanged = run("adam8_", param, grad, *m, *v, **ADAM, found_inf=torch.tensor(1.0))
        assert cuda.launches() == []
    assert_same(unchanged, [param, *m, *v])


@pytest.mark.parametrize("numel", [1_000_003, LARGE])
def test_millions_of_elements(numel):
    with emulated() as cuda:
        check_adam(cuda, values(3, numel), values(5, numel), offset=2**32 - 8 * 1000)
        check_averages(cuda, values(6, numel), offset=2**32 - 8 * 1000)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strided_tensors_are_written_back(layout):
    param, grad = values(4, 50, 71), values(5, 50, 71)
    m, v = moments(param, 256)
    scalars = {"beta": 0.9, **KEY}
    adam = oracle.adam8(param, grad, m, v, **ADAM)
    mean, affine = oracle.ema_int8(m, grad, **scalars)
    square, dynamic = oracle.ema_sq_dynamic8(v, grad, beta=0.9)
    param, grad = strided(param, layout), strided(grad, layout)
    m, v = (
        blocks._replace(codes=strided(blocks.codes, layout)) for blocks in moments(param.contiguous(), 256)
    )
    with emulated():
        assert_same(run("adam8_", param, grad, *m, *v, **ADAM), [adam.param, *adam.exp_avg, *adam.exp_avg_sq])
        assert_same(run("ema_int8_", *m, grad, **scalars), [*affine, mean])
        assert_same(run("ema_sq_dynamic8_", *v, grad, beta=0.9), [*dynamic, square])


def test_twenty_steps_stay_equal():
    param, codes = values(4, 2000), torch.zeros(2000, dtype=torch.uint8)
    m, v = oracle.Affine(codes, torch.zeros(8), torch.zeros(8).byte()), oracle.Dynamic(codes, torch.zeros(8))
    tensors = [tensor.clone() for tensor in (param, *m, *v)]
    with emulated():
        for step in range(1, 21):
            grad, scalars = values(100 + step, 2000), {**ADAM, "step": step}
            operator("adam8_")(tensors[0], grad, *tensors[1:], **scalars)
            param, m, v = oracle.adam8(param, grad, m, v, **scalars)
    assert_same(tensors, [param, *m, *v])
