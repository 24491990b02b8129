"""Bugs planted in CUDA kernels that multiply matrices: each test passes because the harness catches its bug."""

import pytest
import torch

from python_ref.kron import rotate
from tests.emulation import address_sanitizer, cuda_emulator
from tests.emulation.cuda_backend import emulated, operator, run
from tests.emulation.tools import require_tool
from tests.matrices import factors
from tests.ops.launch import outcome
from tests.ops.matrices import relative_error, root_options, spd, truth

ROOT = "inverse_root.cuh"


@pytest.fixture(autouse=True)
def compiler(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())
    if address_sanitizer.loaded():
        pytest.skip("AddressSanitizer ends the process at what some of these bugs read out of bounds")


def root_is_right(order="forward", n=33, kappa=1e4, **edits):
    files = {name.replace("__", "."): (replacement,) for name, replacement in edits.items()}
    with emulated(order, seed=n, edits=files, only="inverse_root.cu"):
        root, _ = run("inverse_root", spd(n, kappa), p=2, **root_options())
    error = relative_error(root, truth(n, kappa, "log", 2))
    return error <= 2e-4 * max(1, kappa / 1e4) and torch.equal(root, root.mT)


# Emulated warps keep step from product to product on tensor cores: a barrier right behind a product is not missed.
SHARED_PRODUCT = "    Products::store(shared, product, step.product, task.place);\n"
LOAD = "  load_symmetrized(x, shared, place);\n"


@pytest.mark.parametrize(
    "edits",
    [
        {"inverse_root__cuh": (f"{SHARED_PRODUCT}    __syncthreads();\n", SHARED_PRODUCT)},
        {"fragments__cuh": (f"  __syncthreads();\n{LOAD}", LOAD)},
        {"fragments__cuh": (f"{LOAD}  __syncthreads();\n", LOAD)},
    ],
    ids=["before P is read", "before the transpose is read", "before the transpose is overwritten"],
)
def test_a_dropped_barrier_gives_wrong_results_in_some_order(edits):
    assert not all(root_is_right(order, **edits) for order in cuda_emulator.ORDERS)


@pytest.mark.parametrize(
    ("n", "edits"),
    [
        (33, {"fragments__cuh": ("split(a.v[b][i % 2 * 2 + i / 2])", "split(a.v[b][i])")}),
        (33, {"fragments__cuh": ("place.lane / 4, along", "place.lane / 8 + place.lane % 2 * 4, along")}),
        (33, {"inverse_root__cuh": ("row < n && column < n; }", "row < n && column <= n; }")}),
        (33, {"inverse_root__cuh": ("multiply<true>(product, Z", "multiply<false>(product, Z")}),
        (33, {"fragments__cuh": ("{high, __float_as_uint(x - __uint_as_float(high))}", "{high, 0}")}),
    ],
    ids=["wrong slot", "wrong lane", "missing mask", "P not transposed", "digits lost"],
)
def test_a_fault_of_a_product_gives_wrong_results(n, edits):
    assert not root_is_right(n=n, **edits)


@pytest.mark.parametrize(
    "edit",
    [
        (
            "  TinyMemory& memory = place.memory;\n  __syncthreads();\n",
            "  TinyMemory& memory = place.memory;\n",
        ),
        (
            "    memory.square[row] = square;\n  }\n  __syncthreads();\n",
            "    memory.square[row] = square;\n  }\n",
        ),
        ("memory.left[place.column][k] * memory.right[k][place.row]", "0"),
        ("place.row * n + place.column", "place.row * MAX_TINY + place.column"),
        ("step.add_Z * PZ", "step.add_Y * PZ"),
    ],
    ids=["product read too late", "sums read too early", "not mirrored", "wrong stride", "wrong coefficient"],
)
def test_a_fault_of_a_tiny_root_gives_wrong_results(edit):
    def is_right(order):
        with emulated(order, seed=3, edits={"tiny_root.cuh": (edit,)}, only="inverse_root.cu"):
            root, _ = run("inverse_root", spd(7, 1e4), p=2, **root_options(precision="fp16"))
        return relative_error(root, truth(7, 1e4, "log", 2)) <= 2e-4 and torch.equal(root, root.mT)

    assert not all(map(is_right, cuda_emulator.ORDERS))


def rotation_is_right(order="forward", m=20, n=17, **edits):
    files = {name.replace("__", "."): (replacement,) for name, replacement in edits.items()}
    generator = torch.Generator().manual_seed(3)
    G = torch.randn(m, n, generator=generator)
    Q_L, Q_R = factors(generator, (), (m, n), ("shared", "shared"), torch.float32)
    with emulated(order, seed=n, edits=files, only="kron_rotate.cu"):
        for left in (Q_L, None):
            tensors = {"G": G, "Q_L": left, "Q_R": Q_R}
            (result,) = outcome(operator("kron_rotate"), tensors, ())
            if not (result - rotate(*tensors.values())).abs().max() < 1e-5:
                return False
    return True


PADDED = "      const int padded = (order + 7) / 8 * 8;\n"
PRODUCT = "    const bool busy = 16 * place.warp < part.rows;\n"
STORE = "    if (busy) Float32Products::store(S, product, 1, place);\n"


@pytest.mark.parametrize(
    "edit",
    [
        (f"      __syncthreads();\n{PADDED}", PADDED),
        (f"      __syncthreads();\n    }}\n{PRODUCT}", f"    }}\n{PRODUCT}"),
        (f"{STORE}    __syncthreads();\n", STORE),
        ("inverse ? row * order + column : column * order + row", "row * order + column"),
        (
            "held = row < order && column < order;\n        value",
            "held = row < N && column < N;\n        value",
        ),
        ("rows = (part.rows + 7) / 8 * 8, columns", "rows = part.rows, columns"),
        (
            "loaded[k] = widen(values[part.place_of(row, column)])",
            "loaded[k] = widen(values[row * part.stride])",
        ),
    ],
    ids=[
        "before the left operand is read",
        "before the right operand is there",
        "before the result is there",
        "wrong side",
        "missing mask",
        "no padding",
        "one column",
    ],
)
def test_a_fault_of_a_rotation_gives_wrong_results(edit):
    assert not all(rotation_is_right(order, rotation__cuh=edit) for order in cuda_emulator.ORDERS)


def test_the_unchanged_sources_have_none():
    assert all(root_is_right(order) and rotation_is_right(order) for order in cuda_emulator.ORDERS)


def test_the_null_space_leaks_without_symmetry():
    Q = torch.linalg.qr(torch.randn(48, 16, generator=torch.Generator().manual_seed(2))).Q
    line = "    symmetrize({}, task.shared, task.place);\n"
    edit = (line.format("Z") + line.format("Y"), "")
    with emulated(edits={ROOT: (edit,)}, only="inverse_root.cu"):
        root, _ = run("inverse_root", (Q @ Q.mT)[None], p=2, **root_options())
    assert not relative_error(root @ Q, Q[None]) < 2e-2
