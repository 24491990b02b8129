"""Lists in one launch, in Triton's interpreter: every item gets the bits of a launch of its own."""

import pytest
import torch

from kpop_kernels._schema import OPERATORS
from kpop_kernels.backends import complete
from kpop_kernels.backends import triton as backend
from tests.emulation.triton import operators
from tests.ops.lists8 import SCALARS, assert_list_is_its_items

GROUPED = [op for op in SCALARS if f"{op.removesuffix('_')}_foreach{'_' * op.endswith('_')}" in backend.FILES]
ALIKE = [(272,), (0,), (16,), (2064,)] * 2


def operator(name):
    return OPERATORS[name].guarded(complete(backend.implementations())[name])


@pytest.mark.parametrize("op", SCALARS)
def test_a_list_is_its_items(interpreted, op):
    assert_list_is_its_items(op, operator)


@pytest.mark.parametrize("op", GROUPED)
def test_items_alike_are_one_launch(interpreted, op):
    assert_list_is_its_items(op, operator, ALIKE, mixed=False)
    assert [kernel for kernel in interpreted if "list" in kernel] == [f"{op.removesuffix('_')}_list_kernel"]


def test_a_graph_gets_a_launch_for_each_item(interpreted, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert_list_is_its_items("quantize_int8", operator, [(16,), (40,)])
    assert interpreted == ["quantize_int8_kernel"] * 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("items, program)", "items, program - 1)", id="first program of an item"),
        pytest.param("program - load_operand(row_ptr)", "program", id="program within the item"),
        pytest.param("programs += triton.cdiv(item.n, elements)", "programs += 1", id="programs of an item"),
        pytest.param("load_operand(row_ptr + 3)", "load_operand(row_ptr + 2)", id="offset"),
        pytest.param(
            "find_row(table_ptr, 4 + TENSORS, items, program)", "table_ptr", id="row of another item"
        ),
    ],
)
def test_planted_bugs_are_found(interpreted, tmp_path, old, new):
    module = operators.mutated("quantize_int8", "lists", tmp_path, old, new)

    def with_bug(name):
        return OPERATORS[name].guarded(getattr(module, name))

    with pytest.raises(AssertionError):
        assert_list_is_its_items("quantize_int8", with_bug, ALIKE, mixed=False)
