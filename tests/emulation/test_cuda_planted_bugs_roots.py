"""Bugs planted in CUDA kernels that multiply matrices: each test passes because the harness catches its bug."""

import pytest
import torch

from tests.emulation import cuda_emulator
from tests.emulation.cuda_backend import emulated, run
from tests.emulation.tools import require_tool
from tests.ops.matrices import relative_error, root_options, spd, truth

ROOT = "inverse_root.cuh"


@pytest.fixture(autouse=True)
def compiler(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())


def root_is_right(order="forward", n=33, kappa=1e4, **edits):
    files = {name.replace("__", "."): (replacement,) for name, replacement in edits.items()}
    with emulated(order, seed=n, edits=files, only="inverse_root.cu"):
        root, _ = run("inverse_root", spd(n, kappa), p=2, **root_options())
    error = relative_error(root, truth(n, kappa, "log", 2))
    return error <= 2e-4 * max(1, kappa / 1e4) and torch.equal(root, root.mT)


BEFORE_THE_PRODUCT = "    if (i == stage.steps) break;\n"
SHARED_PRODUCT = "    Products::store(shared, product, step.product, task.place);\n"


@pytest.mark.parametrize(
    "edit",
    [
        (f"    __syncthreads();\n{BEFORE_THE_PRODUCT}", BEFORE_THE_PRODUCT),
        (f"{SHARED_PRODUCT}    __syncthreads();\n", SHARED_PRODUCT),
    ],
    ids=["before P is written", "before P is read"],
)
def test_a_dropped_barrier_gives_wrong_results_in_some_order(edit):
    assert not all(root_is_right(order, inverse_root__cuh=edit) for order in cuda_emulator.ORDERS)


@pytest.mark.parametrize(
    ("n", "edits"),
    [
        (33, {"fragments__cuh": ("split(a.v[b][i % 2 * 2 + i / 2])", "split(a.v[b][i])")}),
        (33, {"fragments__cuh": ("place.lane / 4, along", "place.lane / 8 + place.lane % 2 * 4, along")}),
        (33, {"inverse_root__cuh": ("column < n; }", "column <= n; }")}),
        (33, {"inverse_root__cuh": ("multiply<true>(product, Z", "multiply<false>(product, Z")}),
        (33, {"fragments__cuh": ("{high, __float_as_uint(x - __uint_as_float(high))}", "{high, 0}")}),
    ],
    ids=["wrong slot", "wrong lane", "missing mask", "P not transposed", "digits lost"],
)
def test_a_fault_of_a_product_gives_wrong_results(n, edits):
    assert not root_is_right(n=n, **edits)


def test_the_unchanged_sources_have_none():
    assert all(root_is_right(order) for order in cuda_emulator.ORDERS)


def test_the_null_space_leaks_without_symmetry():
    Q = torch.linalg.qr(torch.randn(48, 16, generator=torch.Generator().manual_seed(2))).Q
    line = "    symmetrize({}, task.shared, task.place);\n"
    edit = (line.format("Z") + line.format("Y"), "")
    with emulated(edits={ROOT: (edit,)}, only="inverse_root.cu"):
        root, _ = run("inverse_root", (Q @ Q.mT)[None], p=2, **root_options())
    assert not relative_error(root @ Q, Q[None]) < 2e-2
