"""Defects reported of other affine quantizers, each named by what it shows."""

from itertools import combinations

import pytest
import torch

from tests.ops.blocks import VARIANTS, assert_same, values
from tests.ops.launch import Launcher

pytestmark = pytest.mark.parametrize("variant", VARIANTS)


def quantized_and_restored(variant, x, **options):
    size = {"block_size": options.get("block_size", 256)}
    blocks = Launcher("quantize_int8", variant)(x, **options)
    return Launcher("dequantize_int8", variant)(*blocks, **size), blocks[1]


def test_single_signed_blocks_do_not_collapse(variant):
    x = torch.linspace(10, 11, 256)
    restored, scales = quantized_and_restored(variant, x)
    assert ((restored - x).abs() <= scales).all() and restored.unique().numel() > 20


def test_zeros_restore_to_exact_zeros(variant):
    x = torch.tensor([1.0, 0.0]).repeat(128)
    restored, _ = quantized_and_restored(variant, x, seed=3, step=500)
    assert (restored[1::2] == 0).all()


def test_an_all_zero_block_is_not_nan(variant):
    x = torch.zeros(256, 256)
    x[0, 0] = 1
    restored, _ = quantized_and_restored(variant, x)
    assert restored[0, 0] == 1 and restored.count_nonzero() == 1


def test_exact_quotients_are_exact(variant):
    # An approximate division gives 4.6875 / 0.9375 as a little less than 5.
    wanted = torch.arange(1.0, 4097.0)
    x = torch.zeros(4096, 8)
    x[:, 3] = 254 * wanted
    restored, scales = quantized_and_restored(variant, x, block_size=8)
    assert torch.equal(scales, wanted) and torch.equal(restored, x)


def test_elements_beyond_two_to_the_31_have_random_numbers_of_their_own(variant):
    x = values(14, 4096)
    offsets = (0, 2**31, 2**33, 2**36)
    runs = [Launcher("quantize_int8", variant)(x, seed=1, offset=offset)[0] for offset in offsets]
    assert not any(torch.equal(a, b) for a, b in combinations(runs, 2))


def test_non_contiguous_inputs_are_read_in_their_own_order(variant):
    x = values(12, 64, 128)
    for view in (x[::2], x.t(), x[:, 1::3]):
        ours, _ = quantized_and_restored(variant, view)
        same, _ = quantized_and_restored(variant, view.clone(memory_format=torch.contiguous_format))
        assert torch.equal(ours, same)


def test_float16_on_the_cpu_is_not_zero(variant):
    restored, _ = quantized_and_restored(variant, torch.ones(5, 10, dtype=torch.float16))
    assert (restored == 1).all()


def test_a_block_larger_than_the_tensor_and_no_elements(variant):
    assert quantized_and_restored(variant, torch.ones(3), block_size=4096)[0].tolist() == [1, 1, 1]
    assert quantized_and_restored(variant, torch.ones(0, 4))[0].shape == (0, 4)


def test_replicas_and_resumed_runs_round_alike(variant):
    x = values(13, 1000)
    runs = [Launcher("quantize_int8", variant)(x, seed=1, step=k, stream=2) for k in (5, 5, 6)]
    assert_same(runs[0], runs[1])
    assert not torch.equal(runs[0][0], runs[2][0])
