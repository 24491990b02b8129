"""Lists in one launch of the CUDA backend, emulated: every item gets the bits of a launch of its own."""

import pytest

from kpop_kernels.backends import cuda as backend
from tests.emulation import cuda_emulator
from tests.emulation.cuda_backend import emulated, operator
from tests.emulation.tools import require_tool
from tests.ops.lists8 import SCALARS, assert_list_is_its_items

GROUPED = [op for op in SCALARS if f"{op.removesuffix('_')}_foreach{'_' * op.endswith('_')}" in backend.FILES]
MANY = [(1 + 37 * i % 600,) for i in range(40)]


@pytest.fixture(autouse=True)
def compiler(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())


@pytest.mark.parametrize("op", SCALARS)
def test_a_list_is_its_items(op):
    for order in cuda_emulator.ORDERS:
        with emulated(order):
            assert_list_is_its_items(op, operator)
    with emulated():
        assert_list_is_its_items(op, operator, [(3000,), (8,), (4097,)], block_size=4096)


@pytest.mark.parametrize("op", GROUPED)
def test_thirty_two_items_are_one_launch(op):
    with emulated() as cuda:
        assert_list_is_its_items(op, operator, MANY, block_size=64, steps=1)
        launches = [name for name in cuda.launches() if "list_" in name]
    assert len(launches) == 2 and launches[0].startswith(f"kpop::list_{op.removesuffix('_')}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            "first_tile[item + step] <= number", "first_tile[item + step] < number", id="first tile"
        ),
        pytest.param(
            "tiling.count = list.items[item].count", "tiling.count = list.items[item].count - 1", id="count"
        ),
        pytest.param("list.items[item].offset);", "0);", id="offset"),
        pytest.param("  launch_list();\n}", "}", id="the last launch"),
    ],
)
def test_planted_bugs_are_found(old, new):
    edits = {"list.cuh": ((old, new),)}
    with emulated(edits=edits, only="quantize_int8.cu"), pytest.raises((AssertionError, RuntimeError)):
        assert_list_is_its_items("quantize_int8", operator, MANY, block_size=64, steps=1)
