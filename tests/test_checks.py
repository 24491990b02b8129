"""The check for shared memory agrees with counting bytes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kpop_kernels
from kpop_kernels._schema.checks import _overlap

DTYPES = [torch.float32, torch.float16, torch.float64]

views = st.tuples(
    st.sampled_from(DTYPES),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=3),
    st.integers(0, 24),
)


def view(memory, dtype, dims, offset):
    sizes, strides = zip(*dims, strict=True) if dims else ((), ())
    return memory.view(dtype).as_strided(sizes, strides, offset)


def touched(tensor):
    """Return the addresses of a tensor's bytes."""
    start = torch.tensor(tensor.data_ptr())
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        start = start[..., None] + torch.arange(size) * stride * tensor.element_size()
    return set((start[..., None] + torch.arange(tensor.element_size())).reshape(-1).tolist())


@settings(max_examples=300, deadline=None, derandomize=True)
@given(views, views)
def test_overlap_is_a_common_byte(first, second):
    memory = torch.zeros(2048, dtype=torch.uint8)
    a, b = view(memory, *first), view(memory, *second)
    assert _overlap(a, b) == _overlap(b, a) == bool(touched(a) & touched(b))


def test_columns_of_one_buffer_are_disjoint_until_they_meet():
    packed = torch.ones(4, 8)
    kpop_kernels.rebase_moments_(packed[:, :4], packed[:, 4:], None, None)
    with pytest.raises(ValueError, match="exp_avg is written and shares memory with exp_avg_sq"):
        kpop_kernels.rebase_moments_(packed[:, :4], packed[:, 3:7], None, None)


def test_interleaved_views_are_disjoint():
    packed = torch.ones(4, 8)
    kpop_kernels.rebase_moments_(packed[:, ::2], packed[:, 1::2], None, None)


def test_other_storages_and_empty_tensors_are_disjoint():
    whole = torch.ones(4, 8)
    kpop_kernels.rebase_moments_(whole, torch.ones(4, 8), None, None)
    kpop_kernels.rebase_moments_(whole[:0], whole[:0], None, None)
