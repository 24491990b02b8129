"""Whitening, the covariances of what is whitened, and rebased moments on Metal's emulation, against the oracle."""

import pytest
import torch

from kpop_kernels.backends.metal import _passes, _products
from kpop_kernels.backends.metal import rebase_moments as rebase_launcher
from kpop_kernels.backends.metal import whiten as launcher
from python_ref.whiten import whiten_update
from tests.emulation.metal_backend import Bands, emulate, mutated, replace_once, require_clang, serve_metal
from tests.emulation.metal_cases import PRODUCTS
from tests.emulation.metal_emulator import ORDERS
from tests.emulation.test_kron_metal_planted_bugs import NARROW
from tests.errors import relative_error
from tests.ops import test_kl_gram_ema as kl_tests
from tests.ops import test_rebase_moments as rebase_tests
from tests.ops import test_whiten as whiten_tests
from tests.ops.blocks import DTYPES
from tests.ops.grids import BOTH
from tests.ops.launch import LAYOUTS, Launcher, assert_same_bits, outcome, strided


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


@pytest.mark.parametrize("shape", PRODUCTS, ids=str)
def test_whitening_matches_the_reference(monkeypatch, generator, shape, dtype):
    serve_metal(monkeypatch)
    tensors = whiten_tests.arguments(generator, *shape, dtype)
    whiten_tests.check("metal", tensors)
    whiten_tests.check_update("metal", whiten_tests.with_param(generator, tensors))


@pytest.mark.parametrize("shape", PRODUCTS, ids=str)
def test_covariances_match_the_reference(monkeypatch, generator, shape, dtype):
    serve_metal(monkeypatch)
    tensors = kl_tests.arguments(generator, *shape, dtype)
    kl_tests.check("metal", tensors)
    kl_tests.check("metal", tensors | {name: tensors[name].float() for name in ("S_a", "S_b")})


@pytest.mark.parametrize("shape", PRODUCTS, ids=str)
def test_rebased_moments_match_the_reference(monkeypatch, generator, shape, dtype):
    serve_metal(monkeypatch)
    rebase_tests.check("metal", rebase_tests.arguments(generator, *shape, dtype))


@pytest.mark.parametrize("kinds", [BOTH, ("none", "shared"), ("none", "none")])
def test_every_setting_and_pair_of_dtypes(monkeypatch, generator, kinds):
    serve_metal(monkeypatch)
    for scalars in ({"maximize": True}, {"weight_decay": 0.0}, {"scale": 1.0}, {"lr": 0.0}):
        tensors = whiten_tests.arguments(generator, (), 33, 17, kinds)
        whiten_tests.check_update("metal", whiten_tests.with_param(generator, tensors), **scalars)
    for G_dtype in (*DTYPES, torch.float64):
        tensors = whiten_tests.arguments(generator, (), 33, 17, kinds)
        tensors["G"] = tensors["G"].to(G_dtype)
        for param_dtype in DTYPES:
            param = whiten_tests.with_param(generator, tensors, param_dtype)
            whiten_tests.check_update("metal", param)


def test_the_contract_of_every_backend(monkeypatch, generator):
    serve_metal(monkeypatch)
    for layout in LAYOUTS:
        whiten_tests.test_layouts(generator, "metal", layout)
        kl_tests.test_layouts(generator, "metal", layout)
        for name in ("exp_avg", "exp_avg_sq", "P_L", "P_R"):
            rebase_tests.test_layouts(generator, "metal", layout, name)
            alone = rebase_tests.arguments(generator, (2,), 9, 7, ("none", "each"))
            if alone[name] is not None:
                rebase_tests.check("metal", alone | {name: strided(alone[name], layout)})
    for found in (0.0, 1.0):
        whiten_tests.test_found_inf_decides_whether_anything_changes(generator, "metal", found)
    for dtype in (torch.float32, torch.bfloat16):
        whiten_tests.test_a_direction_of_zero_changes_no_bit(generator, "metal", dtype)
    for m, n in ((0, 3), (3, 0)):
        kl_tests.test_an_empty_gradient_decays_the_factors("metal", m, n)
    for scalars in ({"beta": 0.0}, {"eps": 0.0}):
        kl_tests.test_settings(generator, "metal", scalars)
    rebase_tests.test_mixes_dtypes(generator, "metal")
    rebase_tests.test_leaves_inputs_unchanged(generator, "metal")
    rebase_tests.test_expanded_input(generator, "metal")
    rebase_tests.test_deterministic(generator, "metal")
    rebase_tests.test_signed_permutations_are_exact(generator, "metal")
    rebase_tests.test_second_moment_stays_positive_and_keeps_its_sum(generator, "metal")


def test_bad_values_poison_only_their_matrix(monkeypatch, generator):
    serve_metal(monkeypatch)
    whiten_tests.test_bad_values_poison_only_their_matrix(generator, "metal")
    kl_tests.test_bad_values_poison_only_their_matrix(generator, "metal")
    for bad in (torch.nan, torch.inf):
        rebase_tests.test_bad_values_poison_only_their_matrix(generator, "metal", bad)


FORMS = {
    BOTH: ["product_float32_float16_float32", "update_product_bfloat16"],
    ("shared", "none"): ["update_product_bfloat16"],
    ("none", "none"): ["update_pass_bfloat16_float16"],
}


@pytest.mark.parametrize("kinds", FORMS, ids=str)
def test_the_update_is_the_end_of_the_last_product(monkeypatch, generator, kinds):
    compiler = serve_metal(monkeypatch)
    tensors = whiten_tests.arguments(generator, (2,), 66, 20, kinds, torch.float16)
    tensors = whiten_tests.with_param(generator, tensors, torch.bfloat16)
    outcome(Launcher("whiten_update_", "metal"), tensors, ("param",), **whiten_tests.SCALARS)
    assert sorted(compiler.launches) == FORMS[kinds]


@pytest.mark.parametrize("kinds", [BOTH, ("none", "none")])
def test_orders_and_pieces_give_the_same_bits(monkeypatch, generator, kinds):
    tensors = whiten_tests.arguments(generator, (2,), 66, 130, kinds)
    tensors = whiten_tests.with_param(generator, tensors)
    results = []
    for order in (*ORDERS, "forward"):
        serve_metal(monkeypatch, order=order)
        run = Launcher("whiten_update_", "metal")
        results.append(outcome(run, tensors, ("param",), **whiten_tests.SCALARS))
        if len(results) == len(ORDERS):
            monkeypatch.setattr(_products, "_TILES_PER_LAUNCH", 5)
            monkeypatch.setattr(_passes, "_ELEMENTS_PER_LAUNCH", 1500)
    for other in results[1:]:
        assert_same_bits(other, results[0])


def update_is_right(monkeypatch, generator, edit=str, module=launcher):
    """Run every form of an update on an edited source; tell whether results and bands are right."""
    emulate(monkeypatch, edit=lambda source: edit(NARROW.sub("", source)))
    monkeypatch.setattr(_passes, "_ELEMENTS_PER_LAUNCH", 1500)
    right = []
    for kinds in (("each", "shared"), ("shared", "none"), ("none", "shared"), ("none", "none")):
        tensors = whiten_tests.arguments(generator, (2,), 20, 70, kinds)
        tensors, bands = whiten_tests.with_param(generator, tensors), Bands()
        copies = [None if t is None else bands.copy(t) for t in tensors.values()]
        module.whiten_update_(*copies, lr=torch.tensor(0.1), weight_decay=0.2, scale=1.5, maximize=True)
        expected = whiten_update(*tensors.values(), lr=0.1, weight_decay=0.2, scale=-1.5)
        right.append(bands.intact() and relative_error(copies[0], expected) <= 1e-6)
    return all(right)


def test_without_a_bug_all_is_right(monkeypatch, generator):
    assert update_is_right(monkeypatch, generator)


KERNEL_BUGS = {
    "no decay": ("as_type<float>(parameter), update[3],", "as_type<float>(parameter), 1.0f,"),
    "ascent": ("kept - multiply_rounded", "kept + multiply_rounded"),
    "pass that skips": ("(ulong(group) * kPassElements + i)", "(ulong(group) + i)"),
    "pass beyond the end": ("if (at >= ulong(prm[0])) break;", "if (at > ulong(prm[0])) break;"),
    "old weight of another row": ("float_bits(param[own.at])", "float_bits(param[own.at ^ 1ul])"),
}


@pytest.mark.parametrize("bug", KERNEL_BUGS)
def test_a_wrong_update_is_caught(monkeypatch, generator, bug):
    def edit(source):
        return replace_once(source, *KERNEL_BUGS[bug]) if "update_product" in source else source

    assert not update_is_right(monkeypatch, generator, edit)


LAUNCHER_BUGS = {
    "factor not transposed": ("None if P is None else P.mT", "P"),
    "no sign": ("-scale if maximize else scale", "scale"),
    "rotation instead": ("_transposed(P_R), inverse=True), numbers", "_transposed(P_R)), numbers"),
}


@pytest.mark.parametrize("bug", LAUNCHER_BUGS)
def test_a_wrong_launch_is_caught(monkeypatch, generator, bug):
    assert not update_is_right(monkeypatch, generator, module=mutated(launcher, *LAUNCHER_BUGS[bug]))


def test_a_moment_that_is_read_while_it_is_written_is_caught(monkeypatch, generator):
    """One product has to read a copy: without it the tiles that run first change what the others read."""
    emulate(monkeypatch)
    tensors = rebase_tests.arguments(generator, (), 70, 5, ("shared", "none"))
    m = tensors["exp_avg"]
    results = []
    for module in (rebase_launcher, mutated(rebase_launcher, "else moment.clone()", "else moment")):
        moment, square = m.clone(), tensors["exp_avg_sq"].clone()
        module.rebase_moments_(moment, square, tensors["P_L"], None)
        results.append(relative_error(moment, tensors["P_L"].double() @ m.double()) <= 1e-6)
    assert results == [True, False]
