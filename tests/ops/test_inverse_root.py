"""Accuracy of inverse roots: every backend, method, precision and spectrum against float64."""

import json
from pathlib import Path

import pytest
import torch

import kpop_kernels as kpop
from kpop_kernels import backends, coefficients
from kpop_kernels.backends.cpu import inverse_root as launcher
from kpop_kernels.backends.cpu import native
from kpop_kernels.tuning import ANY_STEPS, most_steps
from python_ref.inverse_root import inverse_root as true_inverse_root
from python_ref.inverse_root import spectrum_bound
from tests.ops.matrices import SPECTRA, UNIT, relative_error, root_options, runs_here, spd, truth

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors/golden.json").read_text())


def allowed(kappa, spectrum="log"):
    """Return the stated error of the cushioned schedule in float32; "two" has a loose bound of its spectrum."""
    return 2e-4 * max(1, kappa / 1e4) * (4 if spectrum == "two" else 1)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 31, 64, 127, 256])
@pytest.mark.parametrize("kappa", [1e4, 1e5])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_matches_reference(backend, n, kappa, spectrum):
    A = spd(n, kappa, spectrum)
    with backends.trace() as served:
        root, bound = backend.inverse_root(A, 2, **root_options())
    assert served == {("inverse_root", backend.name): 1}
    assert relative_error(root, truth(n, kappa, spectrum, 2)) <= allowed(kappa, spectrum)
    assert torch.equal(root, root.mT)
    torch.testing.assert_close(bound.double(), spectrum_bound(A), rtol=1e-5, atol=0)


def test_matches_reference_at_512(backend):
    root, _ = backend.inverse_root(spd(512, 1e4), 2, **root_options())
    assert relative_error(root, truth(512, 1e4, "log", 2)) <= allowed(1e4, "log")


@pytest.mark.parametrize("n", [1, 3, 31, 64, 127])
@pytest.mark.parametrize("p", [1, 4])
def test_other_roots_match_reference(backend, n, p):
    root, _ = backend.inverse_root(spd(n, 1e4), p, **root_options())
    assert relative_error(root, truth(n, 1e4, "log", p)) <= allowed(1e4, "log") * (2 if p == 1 else 1)
    assert torch.equal(root, root.mT)


@pytest.mark.parametrize("n", [64, 127])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_cans_schedule_is_more_exact(backend, n, spectrum):
    for kappa in (1e1, 1e3):
        root, _ = backend.inverse_root(spd(n, kappa, spectrum), 2, **root_options(schedule="cans"))
        assert relative_error(root, truth(n, kappa, spectrum, 2)) <= 5e-5 * (4 if spectrum == "two" else 1)


@pytest.mark.parametrize("n", [2, 3, 31, 127])
@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_eigh_is_as_exact_as_the_iteration(backend, n, p, spectrum):
    """Small eigenvalues of eigh in float32 are lost in the rounding of the largest unless computed again."""
    for kappa in (1e2, 1e4, 1e5):
        root, _ = backend.inverse_root(spd(n, kappa, spectrum), p, **root_options(method="eigh"))
        bound = min(allowed(kappa, "two" if n == 2 else spectrum), 4 * kappa * UNIT + 4e-6)
        assert relative_error(root, truth(n, kappa, spectrum, p)) <= bound * (2 if p == 1 else 1)
        assert torch.equal(root, root.mT)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("p", [1, 2, 4])
def test_eigh_of_tiny_orders_is_float64s(backend, n, p):
    """Float32 exceeds what is stated at order 3, by eigenvalues too: for one matrix of twenty."""
    A = spd(n, 1e5, "power", batch=200)
    root, bound = backend.inverse_root(A, p, **root_options(method="eigh"))
    assert relative_error(root, true_inverse_root(A, p)) <= 2 * UNIT
    assert torch.equal(root, root.mT)
    torch.testing.assert_close(bound.double(), spectrum_bound(A), rtol=1e-6, atol=0)


def test_eigh_that_gives_up_is_retried_in_float64(backend, monkeypatch):
    solve, dtypes = torch.linalg.eigh, []

    def gives_up(S):
        dtypes.append(S.dtype)
        if S.dtype == torch.float32:
            raise torch.linalg.LinAlgError("failed to converge")
        return solve(S)

    monkeypatch.setattr(torch.linalg, "eigh", gives_up)
    root, _ = backend.inverse_root(spd(20, 1e2), 2, **root_options(method="eigh"))
    assert dtypes == [torch.float32, torch.float64]
    assert relative_error(root, truth(20, 1e2, "log", 2)) <= 1e-5


@pytest.mark.parametrize("n", [1, 2, 3, 8, 64, 256])
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize(
    ("precision", "kappa", "tolerance"),
    [("tf32", 1e3, 8e-3), ("tf32", 1e5, 3e-2), ("fp16", 1e3, 8e-3), ("fp16", 1e5, 3e-2), ("bf16", 1e3, 5e-2)],
)
def test_narrow_products_match_reference(n, spectrum, precision, kappa, tolerance):
    root, _ = backends.get("composite").inverse_root(
        spd(n, kappa, spectrum), 2, **root_options(precision=precision)
    )
    error = relative_error(root, truth(n, kappa, spectrum, 2))
    assert error <= tolerance * (4 if spectrum == "two" else 1)
    if n <= 8:
        assert error <= 2e-4, "matrices so small are computed in float64"
    else:
        assert error > 5e-4, "the products were not rounded"


@pytest.mark.parametrize("p", [1, 2, 4])
def test_float64_reaches_the_schedule(p):
    """Twelve steps without a cushion end within 1e-9 of 1; the second stage of p = 4 keeps its seven."""
    A = spd(20, 1e4).double()
    with backends.trace() as served:
        root = kpop.inverse_root(A, p, schedule=coefficients.schedule(steps=12, cushion=0.0))
    assert served == {("inverse_root", "composite"): 1}
    assert relative_error(root, true_inverse_root(A, p)) < (1e-6 if p == 4 else 1e-8)


def test_auto_takes_eigh_from_the_measured_order(monkeypatch):
    """What the iteration would need decides, matrix by matrix: 5 steps, 7, or 10."""
    cpu = backends.get("cpu")
    A = torch.stack([spd(48, kappa)[0] for kappa in (3.0, 1e3, 1e5)])
    options = {method: root_options(method=method) for method in ("auto", "newton_schulz", "eigh")}
    iterated, _ = cpu.inverse_root(A, 2, **options["newton_schulz"])
    solved, _ = cpu.inverse_root(A, 2, **options["eigh"])
    for steps, count in ((0, 0), (5, 1), (7, 2), (10, 3), (ANY_STEPS, 3)):
        monkeypatch.setattr(launcher, "most_steps", lambda isa, threads, n, steps=steps: steps)
        automatic, bound = cpu.inverse_root(A, 2, **options["auto"])
        assert torch.equal(automatic[:count], iterated[:count])
        assert count == 3 or relative_error(automatic[count:], solved[count:]) <= 1e-3
        assert not any(torch.equal(automatic[i], iterated[i]) for i in range(count, 3))
        torch.testing.assert_close(bound.double(), spectrum_bound(A), rtol=1e-5, atol=0)
        roots, bounds = [torch.empty(3, 48, 48).mT, torch.empty(48, 48)], [torch.empty(3), torch.empty(())]
        cpu.inverse_root_foreach([A, A[2]], roots, bounds, 2, **options["auto"])
        assert relative_error(roots[0], automatic) <= 1e-3 and relative_error(roots[1], automatic[2]) <= 1e-3
        assert (bounds[0] > 0).all() and bounds[1] > 0


def test_crossover_of_every_instruction_set_is_measured():
    for isa in ("baseline", "avx2", "avx512"):
        for threads in (1, 2, 64):
            assert most_steps(isa, threads, 16) == ANY_STEPS
            steps = [most_steps(isa, threads, n) for n in (16, 64, 128, 256, 512, 1024, 4096)]
            assert steps == sorted(steps, reverse=True) and steps[-1] == 0


def test_check_reports_bound_and_residual():
    A = spd(50, 1e2)
    for p in (1, 2, 4):
        root, info = kpop.inverse_root(A, p, check=True, damping=0.1, relative_damping=1e-3)
        assert info.finite.all() and info.finite.shape == (2,)
        shifted = A.double() + (0.1 + 1e-3 * spectrum_bound(A))[:, None, None] * torch.eye(50)
        assert (info.bound > torch.linalg.eigvalsh(shifted).amax(-1)).all()
        error = torch.linalg.matrix_power(root.double(), p) @ shifted - torch.eye(50)
        rms = torch.linalg.matrix_norm(error) / 50**0.5
        torch.testing.assert_close(info.residual.double(), rms, rtol=0.3, atol=1e-5)
        assert (info.residual < 1e-3).all()
    _, info = kpop.inverse_root(torch.zeros(3, 3), check=True)
    assert info.finite and info.bound == 0 and info.residual == 1


def test_default_damping_follows_the_precision():
    A = spd(40, 1e4)
    for precision, relative in (("auto", 0.0), ("fp32", 0.0), ("tf32", 1e-5), ("fp16", 1e-5), ("bf16", 1e-4)):
        root = kpop.inverse_root(A, precision=precision)
        assert relative_error(root, true_inverse_root(A, 2, relative_damping=relative)) <= 2e-4


def test_shampoo_chapter_holds():
    chapter = GOLDEN["shampoo_chapter"]
    L, G = torch.tensor(chapter["L"]), torch.tensor(chapter["G"])
    for p, key in ((4, "L_inv_fourth"), (2, "L_inv_half")):
        torch.testing.assert_close(kpop.inverse_root(L, p), torch.tensor(chapter[key]), rtol=0, atol=1e-4)
        exact = kpop.inverse_root(L.double(), p, method="eigh")
        torch.testing.assert_close(exact, torch.tensor(chapter[key], dtype=torch.float64), rtol=0, atol=1e-6)
    for damping, expected in ((1e-4, (0.999996, 0.999986)), (1e-2, (0.999562, 0.998612))):
        left = kpop.inverse_root(G @ G.mT, 4, damping=damping)
        right = kpop.inverse_root(G.mT @ G, 4, damping=damping)
        sigma = torch.linalg.svdvals(left @ G @ right)[:2]
        torch.testing.assert_close(sigma, torch.tensor(expected), rtol=0, atol=2e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-4)])
def test_online_kl_shampoo_step_holds(dtype, tolerance):
    golden = GOLDEN["okls_step_0"]
    G = torch.tensor(golden["G"], dtype=dtype)
    m, n = G.shape
    phi, eps, beta2 = G.square().sum(), golden["eps"], golden["beta2"]
    I_m, I_n = torch.eye(m, dtype=dtype), torch.eye(n, dtype=dtype)
    S_a = (m / (n * phi + eps)).sqrt() * kpop.syrk(G)
    S_a = S_a + (S_a.norm() / m**0.5 + eps) * I_m
    S_b = (n / (m * phi + eps)).sqrt() * kpop.syrk(G, side="right")
    S_b = S_b + (S_b.norm() / n**0.5 + eps) * I_n
    whitened_a, whitened_b = G @ kpop.inverse_root(S_b), kpop.inverse_root(S_a) @ G
    S_a = kpop.syrk(whitened_a, C=S_a, alpha=(1 - beta2) / n, beta=beta2) + eps * I_m
    S_b = kpop.syrk(whitened_b, C=S_b, alpha=(1 - beta2) / m, beta=beta2, side="right") + eps * I_n
    P_a, P_b = kpop.inverse_root(S_a), kpop.inverse_root(S_b)
    N = (1 - golden["beta1"] ** 2) * G
    torch.testing.assert_close(P_a, torch.tensor(golden["P_a"], dtype=dtype), rtol=0, atol=tolerance)
    torch.testing.assert_close(
        P_a @ N @ P_b, torch.tensor(golden["U"], dtype=dtype), rtol=0, atol=tolerance / 8
    )


def test_same_result_on_every_instruction_set():
    A = spd(50, 1e4)
    roots = []
    for isa in ("baseline", "avx2", "avx512"):
        if runs_here(isa):
            with native.using(isa):
                roots.append(backends.get("cpu").inverse_root(A, 2, **root_options())[0])
    for root in roots[1:]:
        assert relative_error(root, roots[0]) <= 2e-4
