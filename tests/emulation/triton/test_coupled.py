"""The coupled iteration in Triton's interpreter, up to a condition number of 1e5; planted bugs are found."""

import pytest
import torch

from kpop_kernels.tuning import ProductConfig
from tests.emulation.triton import operators
from tests.emulation.triton.guarded import mutant
from tests.ops.matrices import relative_error, root_options, spd, truth

pytestmark = pytest.mark.usefixtures("interpreted")

N = 45
"""Filled up to 48: two tiles of 32 on a side, the second one cut."""

TILES = ProductConfig(block=32, block_k=32, num_warps=4, num_stages=3)
STEPS = 10
NORMALIZED = ["band_sums_kernel", "band_ratios_kernel", "band_normalize_kernel"]
LAUNCHES = [
    *NORMALIZED,
    "coupled_update_kernel",
    *["grouped_product_kernel", "coupled_update_kernel"] * (STEPS - 1),
]
"""Of a whole list: the bounds, then P, and Y and Z in one; the first step needs no P."""


def errors(kappas, *, n=N, module=None, **options):
    """Return the relative error of A^(-1/2) for each condition number, all of them in one list."""
    module = module or operators.file_of("inverse_root")
    A = [spd(n, kappa)[:1] for kappa in kappas]
    out, bounds = [torch.full_like(item, torch.nan) for item in A], [torch.empty(1) for _ in A]
    halves = options.pop("halves", None)
    module.inverse_root_foreach(A, out, bounds, 2, **root_options(**options), halves=halves, config=TILES)
    for root in out:
        assert torch.equal(root, root.mT), "a root is not symmetric"
    return [
        relative_error(root, truth(n, kappa, "log", 2)[:1]) for root, kappa in zip(out, kappas, strict=True)
    ]


def test_float32_takes_halves_at_every_condition_number(interpreted):
    e2, e4, e5 = errors((1e2, 1e4, 1e5), precision="auto")
    assert interpreted == LAUNCHES
    assert e2 <= 1e-4 and e4 <= 2e-4 and e5 <= 2e-3


def test_float16_keeps_its_digits_by_the_mean_of_both_products(interpreted):
    e2, e4, e5 = errors((1e2, 1e4, 1e5), precision="fp16")
    assert interpreted == LAUNCHES
    assert e2 <= 3e-3 and e4 <= 8e-3 and e5 <= 2e-2
    assert e2 > 2e-4, "the operands were not rounded"


def test_halves_lose_digits_in_float16():
    e3, e5 = errors((1e3, 1e5), precision="fp16", halves=True)
    assert e3 <= 5e-3
    assert 2e-2 < e5 <= 0.15


def test_bfloat16():
    e2, e3 = errors((1e2, 1e3), precision="bf16", relative_damping=0.0)
    assert 2e-3 < e2 <= 5e-2 and e3 <= 5e-2


def test_cans_schedule_in_whole_tiles():
    (error,) = errors((1e3,), n=64, schedule="cans")
    assert error <= 5e-5


def check_steps(coupled, dtype, want, steps, n=40):
    """Require each step to be what its formula says, in scaled float16 too."""
    from kpop_kernels.backends.triton.workspace import Group, Workspace

    workspace = Workspace([Group(2, n, n), Group(1, 3, 3)], TILES, torch.device("cpu"))
    Y = [spd(size, 10.0).double()[:count] / 2 for count, size, _ in workspace.groups]
    Z = [torch.eye(y.shape[-1], dtype=torch.float64).expand_as(y) for y in Y]
    schedule = [(2.5, -1.4), (1.6, -0.6), (1.5, -0.5)][:steps]
    buffer = workspace.filled([y.float() for y in Y], wide=False)
    products = coupled.Products(dtype, "ieee", halves=False)
    found = coupled.coupled_newton_schulz(workspace, buffer, schedule, products, want=want)
    for a, b in schedule:
        P = [z @ y for y, z in zip(Y, Z, strict=True)]
        Y, Z = (
            [a * y + b * y @ p for y, p in zip(Y, P, strict=True)],
            [a * z + b * p @ z for z, p in zip(Z, P, strict=True)],
        )
    for result, expected in zip(workspace.squares(found), {"Y": Y, "Z": Z}[want], strict=True):
        error = relative_error(result, expected)
        assert error <= (1e-6 if dtype == torch.float32 else 3e-3), f"an error of {error}"
        assert torch.equal(result, result.mT), "not symmetric"


@pytest.mark.parametrize("want", ["Y", "Z"])
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_every_step_follows_its_formula(want, steps, dtype):
    check_steps(operators.imported("coupled"), dtype, want, steps)


def test_mirroring_all_three_products_is_found(tmp_path):
    """At a condition number of 100 nobody would see it."""
    full = "grouped.product(self._workspace, Z, Y, out=P, alpha=alpha, precision=precision, wide=False)"
    mirrored = "grouped.symmetric_product(self._workspace, Z, Y, out=P, alpha=alpha, precision=precision)"
    broken = operators.mutated("inverse_root", "coupled", tmp_path, full, mirrored)
    e2, e4 = errors((1e2, 1e4), module=broken)
    assert e2 <= 1e-3 and e4 > 1e-2


BUGS = [
    ("left = tl.where(is_y, state_ptr + own, p_ptr + start)", "left = state_ptr + own"),
    ("tl.where(is_y, a_of_y, a_of_z) * old", "a_of_y * old"),
    ("self._operands, self._following = self._following, self._operands", "pass"),
    ('0 if "Y" in which else 1', "0"),
    ("load_tile(carry_ptr + own, i", "load_tile(carry_ptr + start, i"),
    ("start = place(row_ptr, SQUARE_OFFSET, t // tiles, n, n)", "start = 0"),
    ("b * then.Z / now.Y)\n", "b * then.Z)\n"),
    ("acc = add_product(acc, right, 1, n, left, 1, n,", "acc = add_product(acc, right, 1, n, left, n, n,"),
    ("store_tile(carry_ptr + own, new, i, j, n, n, n, BLOCK, EVEN)", "pass"),
]


@pytest.mark.parametrize(("old", "new"), BUGS, ids=[bug[1] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, old, new):
    broken = mutant(operators.imported("coupled"), tmp_path, {old: new})
    failures = (AssertionError, broken.triton.runtime.errors.InterpreterError)
    with pytest.raises(failures, match=r"error|not symmetric|outside"):
        for want in ("Y", "Z"):
            for dtype in (torch.float32, torch.float16):
                check_steps(broken, dtype, want, 3)
