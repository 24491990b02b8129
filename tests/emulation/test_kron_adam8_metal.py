"""Rotated Adam with 8-bit moments of the Metal backend, emulated: the bits of the separate operators."""

import pytest
import torch

from kpop_kernels.backends.metal import _blocks
from tests.emulation.metal_backend import replace_once, require_clang, serve_metal
from tests.emulation.metal_emulator import ORDERS
from tests.errors import relative_error
from tests.ops.blocks import DTYPES, INF, NAN, assert_same
from tests.ops.grids import BOTH
from tests.ops.launch import LAYOUTS, Launcher, outcome, strided
from tests.ops.test_kron_adam8 import CHANGES, RANDOM, SCALARS, WRITTEN, arguments, assert_right, expected

SHAPES = (
    # batch, m, n, kinds of the left and right factor
    ((), 1, 1, BOTH),
    ((), 3, 5, BOTH),
    ((), 63, 65, BOTH),
    ((), 16, 256, ("none", "shared")),
    ((), 65, 33, ("shared", "none")),
    ((), 40, 43, ("none", "none")),
    ((3,), 33, 17, ("each", "shared")),
    ((0,), 5, 7, ("each", "shared")),
    ((), 0, 7, BOTH),
)
BLOCK_SIZES = ({"block_size": 8}, {"block_size": 264}, {"block_size": 4096, "exp_avg_basis": "original"})


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(7)


def check(tensors, **changes):
    scalars = SCALARS | RANDOM | changes
    ours = outcome(Launcher("kron_adam8_", "metal"), tensors, WRITTEN, **scalars)
    assert_right(ours, Launcher("kron_rotate", "metal"), tensors, **scalars)


def assert_left_out(tensors, **changes):
    """Require that a step that found an infinity writes nothing."""
    scalars = SCALARS | RANDOM | {"found_inf": torch.tensor(1.0)} | changes
    outcome(Launcher("kron_adam8_", "metal"), tensors, (), **scalars)


@pytest.mark.parametrize("basis", ["rotated", "original"])
@pytest.mark.parametrize(("order", "dtype"), list(zip(ORDERS, DTYPES, strict=True)), ids=str)
def test_bits_are_those_of_the_unfused_sequence(monkeypatch, generator, order, dtype, basis):
    serve_metal(monkeypatch, order=order)
    for shape in SHAPES:
        check(arguments(generator, *shape, dtype), exp_avg_basis=basis)


@pytest.mark.parametrize("mode", ["exact", "flush", "fast"])
def test_every_option(monkeypatch, generator, mode):
    serve_metal(monkeypatch, mode=mode)
    for change in (*CHANGES, *BLOCK_SIZES):
        block_size = change.get("block_size", 256)
        check(arguments(generator, (), 31, 45, BOTH, block_size=block_size), **change)


@pytest.mark.parametrize("basis", ["rotated", "original"])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_gradients_that_are_not_finite(monkeypatch, generator, bad, basis):
    """Blocks have the bits of the separate operators; what is not finite reaches as far as there."""
    serve_metal(monkeypatch)
    tensors, scalars = arguments(generator, (2,), 12, 70, BOTH), SCALARS | RANDOM
    tensors["grad"][0, 3, 5] = bad
    ours = outcome(Launcher("kron_adam8_", "metal"), tensors, WRITTEN, exp_avg_basis=basis, **scalars)
    exact, blocks = expected(Launcher("kron_rotate", "metal"), tensors, basis=basis, **scalars)
    finite = exact.isfinite()
    assert_same(ours[1:], blocks)
    assert torch.equal(ours[0].isfinite(), finite) and not finite[0].all()
    assert relative_error(ours[0][finite], exact[finite]) <= 1e-6


def test_layouts(monkeypatch, generator):
    serve_metal(monkeypatch)
    tensors = arguments(generator, (2,), 16, 32, ("each", "each"))
    for layout in LAYOUTS:
        given = {name: t if t.ndim < 2 else strided(t, layout) for name, t in tensors.items()}
        for basis in ("rotated", "original"):
            check(given, exp_avg_basis=basis)


def test_kernels_take_pieces_of_long_tensors(monkeypatch, generator):
    monkeypatch.setattr(_blocks, "_ELEMENTS_PER_LAUNCH", 1024)
    compiler = serve_metal(monkeypatch)
    tensors = arguments(generator, (), 33, 65, BOTH)
    check(tensors)
    check(tensors, exp_avg_basis="original")
    for kernel in ("direction8", "first_moment8_float32", "second_moment8"):
        assert compiler.launches.count(kernel) == 3


@pytest.mark.parametrize("basis", ["rotated", "original"])
@pytest.mark.parametrize("kinds", [BOTH, ("none", "none")], ids=str)
def test_nothing_changes_where_an_infinity_was_found(monkeypatch, generator, kinds, basis):
    serve_metal(monkeypatch)
    assert_left_out(arguments(generator, (), 9, 7, kinds), exp_avg_basis=basis)


BUGS = {
    "direction of the gradient": ("g[i] = normalized(m[i], v[i]", "g[i] = normalized(g[i], v[i]"),
    "first moment descends": ("  load(grad, share, g);\n  turn(g, prm);\n", "  load(grad, share, g);\n"),
    "rotated moment averaged again": (
        "  load(direction, share, m);\n  restore",
        "  load(rotated, share, m);\n  restore",
    ),
    "step not left out": (
        "  threadgroup uint4 partial[kMaxThreads];\n  if (is_left_out(update)) return;\n",
        "  threadgroup uint4 partial[kMaxThreads];\n",
    ),
    "second moment of the original gradient": (
        "average_square(g, weights[2], weights[3], minus_zero, v);\n  const DynamicScale",
        "average_square(m, weights[2], weights[3], minus_zero, v);\n  const DynamicScale",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(monkeypatch, generator, bug):
    def edit(source):
        return replace_once(source, *BUGS[bug]) if "kernel void direction8" in source else source

    serve_metal(monkeypatch, edit=edit, order="shuffled")
    with pytest.raises(AssertionError):
        for basis in ("rotated", "original"):
            check(arguments(generator, (), 9, 70, BOTH), exp_avg_basis=basis, maximize=True)
            assert_left_out(arguments(generator, (), 9, 7, BOTH), exp_avg_basis=basis)
