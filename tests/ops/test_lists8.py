"""Operators on lists of tensors in 8-bit blocks: on the CPU one call of a kernel, threads sharing the items."""

import pytest
import torch

from kpop_kernels import backends
from tests.ops.blocks import VARIANTS
from tests.ops.launch import CPU, Launcher
from tests.ops.lists8 import SCALARS, SHAPES, assert_list_is_its_items, items, numbers_of_items


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("op", SCALARS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_list_is_its_items(variant, op, threads):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert_list_is_its_items(op, lambda name: Launcher(name, variant))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("block_size", [8, 24, 1024])
@pytest.mark.parametrize("op", ["ema_int8_", "quantize_int8"])
@pytest.mark.parametrize("variant", CPU)
def test_other_block_sizes(variant, op, block_size):
    assert_list_is_its_items(op, lambda name: Launcher(name, variant), block_size=block_size)


@pytest.mark.parametrize("op", SCALARS)
def test_the_kernels_of_a_cpu_are_called_once_a_step(op, monkeypatch):
    from kpop_kernels.backends.cpu import native

    class Counting:
        calls = 0

        def __getattr__(self, name):
            self.calls += 1
            return getattr(chosen, name)

    chosen, counting = native.kernels(), Counting()
    monkeypatch.setattr(native, "_kernels", counting)
    columns = [list(column) for column in zip(*items(op, SHAPES, 256), strict=True)]
    stem = op.removesuffix("_")
    operator = getattr(backends.get("cpu"), f"{stem}_foreach{op[len(stem) :]}")
    operator(*columns, **SCALARS[op], **numbers_of_items(op, len(SHAPES), steps=1))
    assert counting.calls == 1
    if "seed" in SCALARS[op]:
        operator(*columns, **SCALARS[op], **numbers_of_items(op, len(SHAPES)))
        assert counting.calls == 1 + 3


def test_an_item_that_does_not_fit_is_named_though_the_one_before_fits():
    x = [torch.ones(4), torch.ones(4)]
    with pytest.raises(ValueError, match="item 1: quantize_int8: offset is -1, it must be an integer from 0"):
        backends.get("composite").quantize_int8_foreach(x, step=[None] * 2, stream=[0, 1], offset=[0, -1])
