"""Roots of tiny matrices in Triton's interpreter, against eigenvalues in float64; planted bugs are found."""

import pytest
import torch

from python_ref.inverse_root import inverse_root as true_inverse_root
from python_ref.inverse_root import spectrum_bound
from tests.emulation.triton import operators
from tests.emulation.triton.guarded import mutant
from tests.ops.matrices import SPECTRA, relative_error, root_options, spd

pytestmark = pytest.mark.usefixtures("interpreted")


def check_tiny(tiny, A, p=2, **damping):
    damping = {"damping": 0.0, "relative_damping": 0.0} | damping
    options = root_options()
    root, bound = tiny.tiny_roots(
        A, p, schedule=options["schedule"], second_stage=options["second_stage"], **damping
    )
    error = relative_error(root, true_inverse_root(A, p, **damping))
    assert error <= 4e-4 * (4 if p == 1 else 1), f"an error of {error}"
    assert torch.equal(root, root.mT), "not symmetric"
    delta = damping["damping"] + damping["relative_damping"] * spectrum_bound(A)
    torch.testing.assert_close(bound.flatten(), spectrum_bound(A) + 1.01 * delta, rtol=1e-12, atol=0)


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
def test_tiny_roots(interpreted, n, p):
    tiny = operators.imported("tiny_root")
    for spectrum in SPECTRA:
        check_tiny(tiny, spd(n, 1e4, spectrum), p)
    check_tiny(tiny, spd(n, 1e4), p, damping=0.1, relative_damping=1e-2)
    assert interpreted == ["tiny_root_kernel"] * (len(SPECTRA) + 1)


def check_singular(tiny):
    Q = torch.linalg.qr(torch.randn(8, 3, generator=torch.Generator().manual_seed(2))).Q
    options = root_options()
    root, _ = tiny.tiny_roots(
        (Q @ Q.mT)[None],
        2,
        schedule=options["schedule"],
        second_stage=options["second_stage"],
        damping=0.0,
        relative_damping=0.0,
    )
    error = relative_error(root @ Q, Q[None])
    assert error <= 2e-2, f"an error of {error}"


def test_singular_matrices_keep_their_range():
    check_singular(operators.imported("tiny_root"))


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
def test_hard_matrices_do_not_meet(poison):
    A = spd(5, 1e2, batch=4).clone()
    A[1, 0, 4], A[2], A[3] = poison, 0, -A[3]
    options = root_options()
    for p in (1, 2, 4):
        root, bound = operators.imported("tiny_root").tiny_roots(
            A, p, schedule=options["schedule"], second_stage=options["second_stage"], damping=0.0,
            relative_damping=0.0,
        )  # fmt: skip
        assert root[0].isfinite().all() and root[1].isnan().all() and root[3].isnan().all()
        assert not root[2].any() and bound[2] == 0 and bound[1].isnan().all()


BUGS = [
    ("a_ptr += matrix * n * n", "a_ptr += matrix * n"),
    ("steps_ptr + 2 * steps, second_steps", "steps_ptr, second_steps"),
    ("b * symmetric_product(P, Z)", "a * symmetric_product(P, Z)"),
    ("tl.sqrt(largest * scale)", "tl.sqrt(scale)"),
    ("delta * inverse", "delta"),
    ("root = tl.where(holds, root, 0.0)\n", "root = root\n"),
]


@pytest.mark.parametrize(("old", "new"), BUGS, ids=[bug[1] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, old, new):
    broken = mutant(operators.imported("tiny_root"), tmp_path, {old: new})
    failures = (AssertionError, broken.triton.runtime.errors.InterpreterError)
    with pytest.raises(failures, match=r"close|error|symmetric|OutOfBounds"):
        check_singular(broken)
        for p in (1, 2, 4):
            check_tiny(broken, spd(5, 1e4), p, damping=0.1)
            check_tiny(broken, spd(2, 2.0), p)
