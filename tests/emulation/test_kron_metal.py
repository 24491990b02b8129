"""Rotations and Adam in a rotated basis of the Metal backend, emulated, against the oracle."""

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels.backends.metal import _passes, _products, _shader
from kpop_kernels.backends.metal import kron_adam as launcher
from kpop_kernels.backends.metal._adam import update_scalars
from python_ref.kron import adam
from tests.emulation.metal_backend import require_clang, run_guarded, serve_metal
from tests.emulation.metal_cases import PRODUCTS
from tests.emulation.metal_emulator import ORDERS
from tests.errors import assert_accurate, relative_error
from tests.matrices import reflection
from tests.ops import test_kron_adam as adam_tests
from tests.ops import test_kron_rotate as rotate_tests
from tests.ops.blocks import DTYPES
from tests.ops.grids import BOTH
from tests.ops.launch import LAYOUTS, assert_same_bits, strided
from tests.ops.test_kron_adam import SCALARS, SETTINGS, WRITTEN, arguments, launch

SHAPES = (
    *PRODUCTS,
    ((), 3, 5, BOTH),
    ((), 128, 128, BOTH),
    ((2,), 5, 7, ("each", "none")),
    ((), 0, 7, BOTH),
    ((), 7, 0, BOTH),
)


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rotations_match_the_reference(monkeypatch, generator, shape, dtype, inverse):
    serve_metal(monkeypatch)
    tensors = rotate_tests.arguments(generator, *shape, dtype)
    rotate_tests.check("metal", tensors, inverse)


@pytest.mark.parametrize("exp_avg_basis", ["rotated", "original"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_adam_matches_the_reference(monkeypatch, generator, shape, dtype, exp_avg_basis):
    serve_metal(monkeypatch)
    adam_tests.check("metal", arguments(generator, *shape, dtype), exp_avg_basis=exp_avg_basis)


@pytest.mark.parametrize(
    ("dtype", "sides"),
    [
        pytest.param(torch.float32, "both", marks=pytest.mark.slow),
        *[(dtype, "left") for dtype in DTYPES],
    ],
    ids=str,
)
def test_a_long_side(monkeypatch, generator, dtype, sides):
    serve_metal(monkeypatch)
    tensors = arguments(generator, (), 64, 4096, ("none", "none"), dtype)
    tensors["Q_L"] = reflection(generator, 64, torch.float32)
    tensors["Q_R"] = reflection(generator, 4096, torch.float32) if sides == "both" else None
    results = launch("metal", tensors), launch("composite", tensors), adam(*tensors.values(), **SCALARS)
    for name, *three in zip(WRITTEN, *results, strict=True):
        assert_accurate(*three, bound=adam_tests.bound(three[0].dtype), name=name)


@pytest.mark.parametrize("kinds", [BOTH, ("shared", "none"), ("none", "shared"), ("none", "none")])
@pytest.mark.parametrize("scalars", SETTINGS)
def test_every_setting(monkeypatch, generator, scalars, kinds):
    serve_metal(monkeypatch)
    adam_tests.check("metal", arguments(generator, (), 33, 17, kinds), **scalars)


@pytest.mark.parametrize("grad_dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("param_dtype", DTYPES, ids=str)
def test_every_pair_of_dtypes(monkeypatch, generator, param_dtype, grad_dtype):
    serve_metal(monkeypatch)
    for kinds in (BOTH, ("shared", "none"), ("none", "shared"), ("none", "none")):
        tensors = arguments(generator, (), 33, 17, kinds, param_dtype)
        tensors["grad"] = tensors["grad"].to(grad_dtype)
        for exp_avg_basis in ("rotated", "original"):
            adam_tests.check("metal", tensors, exp_avg_basis=exp_avg_basis)


def test_layouts(monkeypatch, generator):
    serve_metal(monkeypatch)
    for batch in ((), (2,)):
        for layout in LAYOUTS:
            tensors = arguments(generator, batch, 9, 7, ("each", "each"))
            for name in tensors:
                adam_tests.check("metal", tensors | {name: strided(tensors[name], layout)})
            for name in ("G", "Q_L", "Q_R"):
                rotate_tests.test_layouts(generator, "metal", layout, name)
    for layout in LAYOUTS:
        rotate_tests.test_layouts_of_out(generator, "metal", layout)
    rotate_tests.test_expanded_input(generator, "metal")
    adam_tests.test_expanded_input(generator, "metal")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_factors_of_any_dtype(monkeypatch, generator, dtype):
    serve_metal(monkeypatch)
    rotate_tests.test_mixes_dtypes(generator, "metal", dtype)


def test_the_contract_of_every_backend(monkeypatch, generator):
    serve_metal(monkeypatch)
    rotate_tests.test_leaves_inputs_unchanged(generator, "metal")
    rotate_tests.test_without_factors_it_copies(generator, "metal")
    rotate_tests.test_deterministic(generator, "metal")
    adam_tests.test_the_article_example("metal")
    adam_tests.test_deterministic(generator, "metal")
    for m, n in [(1, 257), (33, 17), (257, 257)]:
        rotate_tests.test_keeps_the_norm_and_comes_back(generator, "metal", m, n)
        adam_tests.test_first_moments_of_a_fresh_parameter(generator, "metal", m, n)
    for kinds in (BOTH, ("none", "none")):
        for dtype in (torch.float32, torch.bfloat16):
            adam_tests.test_leaves_inputs_unchanged(generator, "metal", kinds, dtype)
            adam_tests.test_zero_gradient_leaves_a_fresh_parameter_unchanged(generator, "metal", kinds, dtype)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_bad_values_poison_only_their_matrix(monkeypatch, generator, bad):
    serve_metal(monkeypatch)
    rotate_tests.test_bad_values_poison_only_their_matrix(generator, "metal", bad)
    for kinds in (("each", "shared"), ("none", "none")):
        adam_tests.test_bad_values_poison_only_their_matrix(generator, "metal", kinds, bad)


@pytest.mark.parametrize("kinds", [("each", "shared"), ("none", "shared"), ("none", "none")])
@pytest.mark.parametrize("exp_avg_basis", ["rotated", "original"])
def test_found_inf(monkeypatch, generator, kinds, exp_avg_basis):
    serve_metal(monkeypatch)
    tensors = arguments(generator, (2,), 9, 7, kinds)
    options = {"exp_avg_basis": exp_avg_basis}
    step = launch("metal", tensors, **options)
    assert_same_bits(launch("metal", tensors, found_inf=torch.tensor(0.0), **options), step)
    tensors["grad"][0, 0, 0] = torch.inf
    untouched = launch("metal", tensors, found_inf=torch.tensor(1.0), **options)
    assert_same_bits(untouched, [tensors[name] for name in WRITTEN])


@pytest.mark.parametrize("kinds", [("each", "shared"), ("none", "none")])
def test_numbers_on_the_host_travel_with_the_launch(monkeypatch, generator, kinds):
    serve_metal(monkeypatch)
    tensors = arguments(generator, (2,), 9, 7, kinds)
    by_tensor = launch("metal", tensors)
    by_value = lambda _, *numbers, **step: update_scalars(torch.device("mps"), *numbers, **step)
    monkeypatch.setattr(launcher, "update_scalars", by_value)
    assert_same_bits(launch("metal", tensors), by_tensor)
    untouched = launch("metal", tensors, found_inf=torch.tensor(1.0))
    assert_same_bits(untouched, [tensors[name] for name in WRITTEN])


FORMS = {
    # kinds of the factors, basis of the first moment: what is launched for bfloat16
    ("shared", "shared", "rotated"): [
        "product_float32_bfloat16_float32",
        "adam_product_float32_float32",
        "product_float32_float32_float32",
        "update_product_bfloat16",
    ],
    ("shared", "shared", "original"): [
        "average_bfloat16",
        *["product_float32_float32_float32"] * 2,
        "product_float32_bfloat16_float32",
        "adam_product_float32_float32",
        "product_float32_float32_float32",
        "update_product_bfloat16",
    ],
    ("shared", "none", "rotated"): ["adam_product_float32_bfloat16", "update_product_bfloat16"],
    ("none", "shared", "rotated"): ["adam_product_bfloat16_float32", "update_product_bfloat16"],
    ("none", "shared", "original"): [
        "average_bfloat16",
        "product_float32_float32_float32",
        "adam_product_bfloat16_float32",
        "update_product_bfloat16",
    ],
    ("none", "none", "original"): ["adam_pass_bfloat16_bfloat16"],
}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_no_launch_but_the_products(monkeypatch, generator, form):
    compiler = serve_metal(monkeypatch)
    *kinds, exp_avg_basis = form
    launch("metal", arguments(generator, (2,), 66, 20, kinds, torch.bfloat16), exp_avg_basis=exp_avg_basis)
    assert sorted(compiler.launches) == sorted(FORMS[form])


@pytest.mark.parametrize(
    ("mode", "dtype"), [("flush", DTYPES[0]), ("fast", DTYPES[1]), ("contract", DTYPES[2])]
)
def test_every_order_of_threads_gives_the_same_bits(monkeypatch, generator, mode, dtype):
    """Between bands of NaN, those of the matrices between products included."""
    tensors = arguments(generator, (2,), 66, 130, ("each", "each"), dtype)
    scalars = SCALARS | {"lr": torch.tensor(0.1), "step": torch.tensor(7), "exp_avg_basis": "original"}
    results = []
    for order in ORDERS:
        serve_metal(monkeypatch, mode=mode, order=order)
        results.append(run_guarded("kron_adam_", tensors, WRITTEN, **scalars))
    for other in results[1:]:
        assert_same_bits(other, results[0])
    expected = adam(*tensors.values(), **(SCALARS | {"exp_avg_basis": "original"}))
    for result, exact in zip(results[0], expected, strict=True):
        assert relative_error(result, exact) <= max(1e-6, torch.finfo(result.dtype).eps / 2)


@pytest.mark.parametrize("exp_avg_basis", ["rotated", "original"])
def test_identities_are_no_factors(monkeypatch, generator, exp_avg_basis):
    """Products with an identity are exact, so that the products' epilogues are the pass without a factor."""
    serve_metal(monkeypatch)
    plain = arguments(generator, (), 70, 35, ("none", "none"))
    eyes = {"Q_L": torch.eye(70), "Q_R": torch.eye(35)}
    options = {"exp_avg_basis": exp_avg_basis, "clip": 0.9, "maximize": True}
    assert_same_bits(launch("metal", plain | eyes, **options), launch("metal", plain, **options))
    assert_same_bits(
        launch("metal", plain | {"Q_L": eyes["Q_L"]}, **options), launch("metal", plain, **options)
    )


@pytest.mark.parametrize("kinds", [BOTH, ("none", "none")])
def test_pieces_are_the_whole(monkeypatch, generator, kinds):
    compiler = serve_metal(monkeypatch)
    tensors = arguments(generator, (3,), 66, 20, kinds)
    whole = launch("metal", tensors, exp_avg_basis="original")
    launches = len(compiler.launches)
    monkeypatch.setattr(_products, "_TILES_PER_LAUNCH", 4)
    monkeypatch.setattr(_passes, "_ELEMENTS_PER_LAUNCH", 1000)
    assert_same_bits(launch("metal", tensors, exp_avg_basis="original"), whole)
    assert len(compiler.launches) == launches + (4 + 6 * 2 if kinds == BOTH else 4)


def test_bits_do_not_depend_on_batch_or_list(monkeypatch, generator):
    serve_metal(monkeypatch)
    tensors = arguments(generator, (2,), 20, 31, ("each", "shared"))
    one = {name: t[1] if name != "Q_R" else t for name, t in tensors.items()}
    alone = launch("metal", one)
    other = arguments(generator, (), 64, 40, BOTH)
    shared = {name: value for name, value in SCALARS.items() if name != "step"}
    lists = [[a.clone(), b.clone()] for a, b in zip(tensors.values(), other.values(), strict=True)]
    backends.get("metal").kron_adam_foreach_(
        *lists, step=[torch.tensor(7)] * 2, found_inf=[None, None], **shared
    )
    listed = dict(zip(tensors, lists, strict=True))
    assert_same_bits(alone, [listed[name][0][1] for name in WRITTEN])


def test_indices_reach_beyond_32_bits(monkeypatch):
    """Tiles are numbered, and elements found, in 64 bits; no launch has 2^32 threads."""
    source = _shader.read_source("kron_adam")
    assert "element.at = (tile.item * rows + i) * cols + j;" in source and "ulong item;" in source
    assert "ulong(prm[0]) + group, in_item = ulong(across) * down" in source
    asked = []
    monkeypatch.setattr(_shader, "kernel", lambda *names: lambda *args, **grid: asked.append((args, grid)))
    huge, Q = torch.empty(2**16, 2**16, device="meta"), torch.empty(2**16, 2**16, device="meta")
    number = torch.tensor(1.0)
    options = {name: value for name, value in SCALARS.items() if name not in ("lr", "step")}
    for left in (Q, None):
        asked.clear()
        tensors = [huge.clone() for _ in range(4)]
        monkeypatch.setattr(launcher, "update_scalars", lambda *_, **__: [0.0] * 5)
        launcher.kron_adam_(*tensors, left, None, lr=number, step=number, **options)
        integers = [next(a for a in args if isinstance(a, list)) for args, _ in asked]
        assert max(grid["threads"] for _, grid in asked) < 2**32
        if left is None:
            assert sum(count for count, _ in integers) == 2**32
        else:
            assert sum(grid["threads"] for _, grid in asked) == 2 * 2**20 * 128
            assert max(first for first, *_ in integers) > 2**19
