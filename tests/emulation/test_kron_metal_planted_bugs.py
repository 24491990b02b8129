"""Bugs planted in Metal's rotations and Adam: each test passes only if its bug is caught."""

import re

import pytest
import torch

from kpop_kernels.backends.metal import _passes, _products, _shader, kron_adam, kron_rotate
from python_ref.kron import adam
from tests.emulation.metal_backend import Bands, emulate, mutated, replace_once, require_clang
from tests.emulation.metal_emulator import ORDERS
from tests.emulation.metal_lint import lint
from tests.errors import relative_error
from tests.ops.test_kron_adam import SCALARS, WRITTEN, arguments

NARROW = re.compile(r"template \[\[host_name\(\"\w+_b?float16(?:_\w+)?\"\)\]\][^;]*;")
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
CASES = [
    # batch, rows, columns, kinds of the factors, settings
    ((2,), 70, 66, ("each", "each"), {"maximize": True}),
    ((2,), 9, 70, ("shared", "each"), {"exp_avg_basis": "original", "clip": 0.3}),
    ((), 300, 5, ("shared", "none"), {"exp_avg_basis": "original", "maximize": True}),
    ((), 66, 35, ("none", "shared"), {"eps": 0.5}),
    ((), 40, 70, ("none", "none"), {"maximize": True}),
    ((), 5, 9, ("shared", "shared"), {"found_inf": torch.tensor(1.0)}),
    ((), 5, 9, ("none", "none"), {"found_inf": torch.tensor(1.0)}),
]


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


def is_right(monkeypatch, edit=str, module=kron_adam, cases=CASES, **choices):
    """Run every form of the operator on an edited source; tell whether results, inputs and bands are right."""
    emulate(monkeypatch, edit=lambda source: edit(NARROW.sub("", source)), **choices)
    # A pass that goes on past its end steps twice on the first element of the next piece.
    monkeypatch.setattr(_passes, "_ELEMENTS_PER_LAUNCH", 2000)
    generator = torch.Generator().manual_seed(3)
    return all(_one_is_right(module, arguments(generator, *case[:4]), case[4]) for case in cases)


def _one_is_right(module, tensors, settings):
    bands = Bands()
    copies = {name: None if t is None else bands.copy(t) for name, t in tensors.items()}
    numbers = {"lr": torch.tensor(0.1), "step": torch.tensor(7)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty", bands.empty)
        module.kron_adam_(*copies.values(), **(SCALARS | numbers | settings))
    untouched = "found_inf" in settings
    exact = (
        dict(zip(WRITTEN, adam(*tensors.values(), **(SCALARS | settings)), strict=True))
        if not untouched
        else {}
    )
    read = [name for name, t in tensors.items() if t is not None and name not in exact]
    return (
        bands.intact()
        and all(torch.equal(copies[name], tensors[name]) for name in read)
        and all(relative_error(copies[name], exact[name]) <= 1e-6 for name in exact)
    )


@pytest.mark.parametrize("order", ORDERS)
def test_without_a_bug_all_is_right(monkeypatch, order):
    assert is_right(monkeypatch, order=order)


@pytest.mark.parametrize("index", range(4))
def test_a_dropped_barrier_is_caught(monkeypatch, index):
    def edit(source):
        parts = source.split(BARRIER)
        assert len(parts) == 5
        return BARRIER.join(parts[: index + 1]) + BARRIER.join(parts[index + 1 :])

    assert not all(is_right(monkeypatch, edit, cases=CASES[:1], order=order) for order in ORDERS)


PRODUCT_BUGS = {
    "no batch of the left factor": ("tile.item * ulong(prm[4])", "0ul"),
    "no batch of the right factor": ("tile.item * ulong(prm[7])", "0ul"),
    "row of the next tile": ("tile.row = uint(place / across)", "tile.row = uint(place % across)"),
    "a row too many": ("i < rows && j < cols", "i <= rows && j < cols"),
    "a column too many": ("i < rows && j < cols", "i < rows && j <= cols"),
    "other half": ("part * kHalf + e / kTile", "(1u - part) * kHalf + e / kTile"),
    "depth that does not exist": ("line < lines.count && from + k < depth", "line < lines.count"),
    "sums that are kept": ("      clear(recent);\n", ""),
    "only the last sums": ("sums.at[part][q] += staged", "sums.at[part][q] = staged"),
}

ADAM_BUGS = {
    "descent": ("prm[kOwn] != 0 ? -sums", "prm[kOwn] == 7 ? -sums"),
    "first moment of the wrong basis": ("prm[kOwn + 1u] != 0", "prm[kOwn + 1u] == 0"),
    "other flag": ("prm[kOwn + 1u] != 0", "prm[kOwn] != 0"),
    "step that is not left out": ("magnitude(as_type<uint>(update[4])) != 0u", "update[4] == 7.0f"),
    "weights of the first moment": (
        "weights[2], exp_avg_sq[at], weights[3]",
        "weights[0], exp_avg_sq[at], weights[1]",
    ),
    "gradient that is not squared": ("weights[3], g * g,", "weights[3], g,"),
    "corrections swapped": ("{update[0], update[1],", "{update[1], update[0],"),
    "no limit below": ("N = N < -u.limit ? -u.limit : N;", ""),
    "eps inside of the root": ("numerator, root + u.eps)", "numerator, precise::sqrt(root * root + u.eps))"),
    "no decay": ("as_type<float>(parameter), update[3],", "as_type<float>(parameter), 1.0f,"),
    "first moment that is not stored": ("  store(exp_avg, at, float_bits(m));\n", ""),
    "second moment that is not stored": ("  store(exp_avg_sq, at, float_bits(v));\n", ""),
    "pass that skips": ("(ulong(group) * kPassElements + i)", "(ulong(group) + i)"),
    "pass beyond the end": (
        "if (at >= ulong(prm[0])) break;\n    const float g = as_type<float>(float_bits(grad[at]) "
        "^ (prm[1] != 0 ? kSign : 0u));\n    const uint",
        "if (at > ulong(prm[0])) break;\n    const float g = as_type<float>(float_bits(grad[at]) "
        "^ (prm[1] != 0 ? kSign : 0u));\n    const uint",
    ),
}


@pytest.mark.parametrize("bug", PRODUCT_BUGS)
def test_a_wrong_product_is_caught(monkeypatch, bug):
    """The text is in every source: those of the rotation, and of the products that end in Adam or the update."""
    assert not is_right(monkeypatch, lambda source: replace_once(source, *PRODUCT_BUGS[bug]))


@pytest.mark.parametrize("bug", ADAM_BUGS)
def test_a_wrong_step_is_caught(monkeypatch, bug):
    planted = []

    def edit(source):
        if ADAM_BUGS[bug][0] not in source:
            return source
        planted.append(source)
        return replace_once(source, *ADAM_BUGS[bug])

    assert not is_right(monkeypatch, edit) and planted


LAUNCHER_BUGS = {
    "rotated again instead of back": (
        kron_adam,
        "last_product(N, Q_L, Q_R, inverse=True)",
        "last_product(N, Q_L, Q_R)",
    ),
    "gradient in place of the moment": (
        kron_adam,
        "last_product(m, Q_L, Q_R), N",
        "last_product(G, Q_L, Q_R), N",
    ),
    "flags swapped": (kron_adam, "(maximize, original)", "(original, maximize)"),
    "no clip": (kron_adam, "math.inf if clip is None else clip", "math.inf"),
    "one factor for the batch": (kron_rotate, "shared=Q.ndim == 2", "shared=True"),
    "factor as it lies": (kron_rotate, "Q if inverse else Q.mT", "Q.mT if inverse else Q"),
    "tiles of one matrix": (_products, "out.shape[:-2].numel() * ", ""),
    "strides of the other layout": (_products, "(batch, 1, number)", "(batch, depth, 1)"),
}


@pytest.mark.parametrize("bug", LAUNCHER_BUGS)
def test_a_wrong_launch_is_caught(monkeypatch, bug):
    module, *texts = LAUNCHER_BUGS[bug]
    copy = mutated(module, *texts)
    for user in (kron_adam, kron_rotate):
        for name in ("last_product", "multiply", "lines", "tiles_of", "launch_tiles"):
            if module is not kron_adam and hasattr(user, name) and hasattr(copy, name):
                monkeypatch.setattr(user, name, getattr(copy, name))
    assert not is_right(monkeypatch, module=copy if module is kron_adam else kron_adam)


LOADS = "UNROLL for (uint i = 0u; i < 4u; ++i) {\n      simdgroup_load(a[i]"
LINT_BUGS = {
    "thread-limit": ("kron_rotate", "[[max_total_threads_per_threadgroup(128)]]\n", ""),
    "buffer-index": ("kron_rotate", "[[buffer(2)]]", "[[buffer(1)]]"),
    "address-space": (
        "kron_adam",
        "adam_of(float g, device float* exp_avg,",
        "adam_of(float g, float* exp_avg,",
    ),
    "matrix-index": ("product", LOADS, LOADS.removeprefix("UNROLL ")),
}


@pytest.mark.parametrize("rule", LINT_BUGS)
def test_a_bug_that_the_lint_sees(rule):
    name, old, new = LINT_BUGS[rule]
    text = replace_once((_shader._DIRECTORY / f"{name}.metal").read_text(), old, new)
    assert rule in [finding.rule for finding in lint(text)]
