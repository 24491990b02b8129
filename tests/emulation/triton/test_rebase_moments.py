"""Moments in a refreshed basis in Triton's interpreter against the oracle."""

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS
from python_ref.kron import rebase_moments
from tests.emulation.triton import operators
from tests.emulation.triton.test_kron_adam import SCALARS as ADAM
from tests.emulation.triton.test_kron_adam import WRITTEN
from tests.emulation.triton.test_kron_adam import arguments as adam_arguments
from tests.emulation.triton.test_kron_rotate import CONFIG, SHAPES
from tests.errors import assert_accurate, relative_error, unit_roundoff
from tests.matrices import factors, normal, signed_permutation
from tests.ops.launch import LAYOUTS, strided

pytestmark = pytest.mark.usefixtures("interpreted")


def arguments(batch, m, n, kinds, dtype=torch.float32):
    generator = torch.Generator().manual_seed(m * n)
    P_L, P_R = factors(generator, batch, (m, n), kinds, torch.float32)
    exp_avg = normal(generator, *batch, m, n, dtype=dtype)
    exp_avg_sq = normal(generator, *batch, m, n).square().to(dtype)
    return {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "P_L": P_L, "P_R": P_R}


def assert_right(tensors, ours):
    composite = {name: None if t is None else t.clone() for name, t in tensors.items()}
    backends.get("composite").rebase_moments_(*composite.values())
    oracle = rebase_moments(*tensors.values())
    for name, result, exact in zip(("exp_avg", "exp_avg_sq"), ours, oracle, strict=True):
        bound = 5e-7 + (unit_roundoff(result.dtype) if result.dtype != torch.float32 else 0)
        assert_accurate(result, composite[name], exact, bound=bound, name=name)


def check(tensors, module=None):
    assert_right(tensors, operators.run("rebase_moments_", tensors, module=module, config=CONFIG))


@pytest.mark.parametrize(("batch", "m", "n", "kinds"), SHAPES)
def test_matches_the_oracle(batch, m, n, kinds):
    check(arguments(batch, m, n, kinds))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_16_bits(dtype):
    for kinds in ("shared", "shared"), ("none", "shared"):
        check(arguments((), 17, 33, kinds, dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kinds", [("each", "shared"), ("none", "shared")])
def test_takes_any_strides(kinds, layout):
    tensors = arguments((2,), 9, 19, kinds)
    check({name: None if tensor is None else strided(tensor, layout) for name, tensor in tensors.items()})


def test_a_list_takes_as_many_launches_as_an_item(interpreted):
    for copies in 1, 3:
        items = [arguments((), 16, 32 * n, ("shared", "shared")) for n in range(1, copies + 1)]
        lists = [[t.clone() for t in column] for column in zip(*(i.values() for i in items), strict=True)]
        interpreted.clear()
        operator, module = OPERATORS["rebase_moments_foreach_"], operators.file_of("rebase_moments_foreach_")
        operator.guarded(module.rebase_moments_foreach_)(*lists)
        assert interpreted == ["product_kernel"] * 4
        for tensors, *ours in zip(items, *lists[:2], strict=True):
            assert_right(tensors, ours)


def trajectory(tensors, change, *, carried=True):
    """Return the parameter after six steps; bases change before the fourth, and moments with them if carried."""
    generator = torch.Generator().manual_seed(5)
    for step in range(1, 7):
        if step == 4 and change is not None:
            P_L, P_R = change
            if carried:
                names = ("exp_avg", "exp_avg_sq")
                moments = {name: tensors[name] for name in names} | {"P_L": P_L, "P_R": P_R}
                moved = operators.run("rebase_moments_", moments, config=CONFIG)
                tensors = tensors | dict(zip(names, moved, strict=True))
            tensors = tensors | {"Q_L": tensors["Q_L"] @ P_L.mT, "Q_R": tensors["Q_R"] @ P_R.mT}
        tensors = tensors | {"grad": normal(generator, *tensors["param"].shape, dtype=torch.float32)}
        written = operators.run("kron_adam_", tensors, config=CONFIG, **(ADAM | {"step": step}))
        tensors = tensors | dict(zip(WRITTEN, written, strict=True))
    return tensors["param"]


def test_permuted_bases_of_other_signs_change_nothing_in_a_trajectory():
    """Rounding moves an entry by about 1e-6; moments left behind move them by far more."""
    generator = torch.Generator().manual_seed(6)
    tensors = adam_arguments((), 17, 33, ("shared", "shared"))
    change = [signed_permutation(generator, n, torch.float32) for n in (17, 33)]
    before = trajectory(tensors, None)
    torch.testing.assert_close(trajectory(tensors, change), before, rtol=1e-5, atol=1e-6)
    assert relative_error(trajectory(tensors, change, carried=False), before.double()) > 1e-2


BUGS = [
    ("rebase_moments", "squared=squared", "squared=False"),
    ("rebase_moments", "right_transposed=True", "right_transposed=False"),
    ("rebase_moments", "torch.empty_like(m) if one else m", "m if one else m"),
]


@pytest.mark.parametrize(("file", "old", "new"), BUGS, ids=[bug[2] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, file, old, new):
    broken = operators.mutated("rebase_moments_", file, tmp_path, old, new)
    with pytest.raises(AssertionError):
        check(arguments((), 17, 33, ("shared", "shared")), module=broken)
        check(arguments((), 33, 33, ("shared", "none")), module=broken)
