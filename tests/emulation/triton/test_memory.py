"""Conversions at the doors, around every rounding boundary of bfloat16; the interpreter's guards."""

import pytest
import torch

from kpop_kernels.tuning import BlockwiseConfig
from tests.emulation.triton.guarded import mutant

pytestmark = pytest.mark.usefixtures("interpreted")

CONFIG = BlockwiseConfig(elements=4096, num_warps=4)


@pytest.fixture
def kernels():
    from tests.emulation.triton import kernels

    return kernels


def copy(module, x, y):
    from kpop_kernels.backends.triton.launch import launch

    launch(
        module.copy_kernel,
        (-(-x.numel() // CONFIG.elements),),
        (x, y, x.numel()),
        CONFIG,
        BLOCK=CONFIG.elements,
    )
    return y


def all_bfloat16():
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def around_boundaries():
    """Each bfloat16, and the float32 values beside it, at the middle to the next, and beside the middle."""
    bits = all_bfloat16().to(torch.float32).view(torch.int32)
    offsets = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=torch.int32)
    return (bits[:, None] | offsets).view(-1).view(torch.float32)


def same_bits(a, b):
    """Compare bits, taking all NaN as one."""
    integers = torch.int16 if a.dtype.itemsize == 2 else torch.int32
    return ((a.view(integers) == b.view(integers)) | (a.isnan() & b.isnan())).all()


def test_every_bfloat16_is_loaded_exactly(kernels, guarded):
    x = guarded.tensor("x", all_bfloat16())
    y = copy(kernels, x, guarded.output("y", x.shape, torch.float32))
    assert same_bits(y, x.to(torch.float32))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_stores_round_to_nearest_even(kernels, guarded, dtype):
    x = guarded.tensor("x", around_boundaries())
    y = copy(kernels, x, guarded.output("y", x.shape, dtype))
    assert same_bits(y, x.to(dtype))


def test_every_nan_is_stored_as_one_bfloat16(kernels):
    x = torch.tensor([0x7FFFFFFF, 0x7F800001, -1], dtype=torch.int32).view(torch.float32)
    y = copy(kernels, x, torch.empty(3, dtype=torch.bfloat16))
    assert (y.view(torch.int16) == 0x7FC0).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("0x7FFF + ((bits >> 16) & 1)", "0x8000", id="ties-away-from-zero"),
        pytest.param("(bits + 0x7FFF + ((bits >> 16) & 1)) >> 16", "bits >> 16", id="truncates"),
        pytest.param(
            "tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC0, nearest)", "nearest", id="nan-overflows"
        ),
    ],
)
def test_planted_rounding_is_found(kernels, tmp_path, old, new):
    from kpop_kernels.backends.triton import memory

    broken_memory = mutant(memory, tmp_path, {old: new})
    broken = mutant(kernels, tmp_path, {memory.__name__: broken_memory.__name__})
    x = around_boundaries()
    y = copy(broken, x, torch.empty(x.shape, dtype=torch.bfloat16))
    assert not same_bits(y, x.to(torch.bfloat16))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(
            "store_rounded(y_ptr + offsets, x, ",
            "tl.store(y_ptr + offsets, x.to(tl.bfloat16), ",
            "cast to bfloat16 truncates",
            id="store-without-rounding",
        ),
        pytest.param(
            "x = load_as_float32(x_ptr + offsets, offsets < n)",
            "x = tl.load(x_ptr + offsets, offsets < n) + tl.load(x_ptr + offsets, offsets < n)",
            "bfloat16 is computed with",
            id="arithmetic-in-bfloat16",
        ),
        pytest.param(
            "load_as_float32(x_ptr + offsets, offsets < n)",
            "load_as_float32(x_ptr + offsets)",
            "outside of every tensor",
            id="load-without-mask",
        ),
    ],
)
def test_interpreter_refuses_to_be_silently_wrong(kernels, tmp_path, old, new, message):
    from triton.runtime.errors import InterpreterError

    broken = mutant(kernels, tmp_path, {old: new})
    with pytest.raises(InterpreterError, match=message):
        copy(broken, torch.ones(5, dtype=torch.bfloat16), torch.empty(5, dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_products_are_those_of_the_values(kernels, guarded, dtype):
    from kpop_kernels.backends.triton.launch import launch

    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-8, 8, (32, 32), generator=generator).to(dtype) for _ in range(2))
    c = guarded.output("c", (32, 32), torch.float32)
    launch(kernels.product_kernel, (1,), (guarded.tensor("a", a), guarded.tensor("b", b), c), CONFIG, N=32)
    assert torch.equal(c, a.to(torch.float32) @ b.to(torch.float32))
