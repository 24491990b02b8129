import json
from pathlib import Path

import pytest
import torch

import kpop_kernels as kpop
from kpop_kernels import backends
from kpop_kernels.backends.cpu import native
from kpop_kernels.tuning import eigh_from
from python_ref.inverse_root import inverse_root as true_inverse_root
from python_ref.inverse_root import spectrum_bound
from tests.ops.matrices import (
    BACKENDS,
    SPECTRA,
    in_guard_band,
    relative_error,
    root_options,
    running,
    runs_here,
    spd,
    truth,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors/golden.json").read_text())
UNIT = 2.0**-24


@pytest.fixture(params=BACKENDS)
def backend(request):
    with running(request.param) as found:
        yield found


def allowed(kappa, spectrum):
    """Return the stated error in float32; the bound of the spectrum is loose for "two"."""
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


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_eigh_is_exact_to_the_condition_number(backend, p, spectrum):
    for kappa in (1e2, 1e5):
        root, _ = backend.inverse_root(spd(127, kappa, spectrum), p, **root_options(method="eigh"))
        assert (
            relative_error(root, truth(127, kappa, spectrum, p)) <= (8 if p == 1 else 4) * kappa * UNIT + 4e-6
        )
        assert torch.equal(root, root.mT)


@pytest.mark.parametrize("n", [1, 2, 8, 64, 256])
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize(
    ("precision", "kappa", "tolerance"),
    [("tf32", 1e3, 8e-3), ("tf32", 1e5, 3e-2), ("fp16", 1e3, 8e-3), ("fp16", 1e5, 3e-2), ("bf16", 1e3, 5e-2)],
)
def test_narrow_products_match_reference(n, spectrum, precision, kappa, tolerance):
    root, _ = backends.get("composite").inverse_root(
        spd(n, kappa, spectrum), 2, **root_options(precision=precision)
    )
    factor = 4 if spectrum == "two" or n == 2 else 1
    error = relative_error(root, truth(n, kappa, spectrum, 2))
    assert error <= tolerance * factor
    if n >= 8:
        assert error > 5e-4, "the products were not rounded"


@pytest.mark.parametrize("p", [1, 2, 4])
def test_float64_reaches_the_schedule(p):
    A = spd(20, 1e4).double()
    with backends.trace() as served:
        root = kpop.inverse_root(A, p, schedule=kpop_schedule(12))
    assert served == {("inverse_root", "composite"): 1}
    assert relative_error(root, true_inverse_root(A, p)) < 1e-8 if p != 4 else 1e-6


def kpop_schedule(steps):
    from kpop_kernels import coefficients

    return coefficients.schedule(steps=steps, cushion=0.0)


def test_auto_takes_eigh_from_the_measured_order():
    order = eigh_from(native.kernels().isa, torch.get_num_threads())
    cpu = backends.get("cpu")
    for n, method in ((order - 1, "newton_schulz"), (order, "eigh")):
        A = spd(n, 1e3, batch=1)
        automatic, _ = cpu.inverse_root(A, 2, **root_options(method="auto"))
        chosen, _ = cpu.inverse_root(A, 2, **root_options(method=method))
        assert torch.equal(automatic, chosen)


def test_crossover_of_every_instruction_set_is_measured():
    for isa in ("baseline", "avx2", "avx512"):
        assert eigh_from(isa, 1) >= 16
        assert eigh_from(isa, 64) >= 16


def test_public_function_runs_on_the_cpu_kernels():
    with backends.trace() as served:
        root = kpop.inverse_root(spd(31, 1e4))
    assert served == {("inverse_root", "cpu"): 1}
    assert relative_error(root, truth(31, 1e4, "log", 2)) <= allowed(1e4, "log")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_leaves_inputs_unchanged(backend, dtype):
    if dtype not in backend.dtypes:
        pytest.skip(f"{backend.name} does not serve {dtype}")
    A = spd(17, 1e2).to(dtype)
    before = A.clone()
    root, _ = backend.inverse_root(A, 2, **root_options())
    assert torch.equal(A, before)
    assert root.dtype == dtype
    tolerance = {torch.bfloat16: 4e-3, torch.float16: 6e-4}.get(dtype, 2e-4)
    assert relative_error(root, true_inverse_root(A, 2)) <= tolerance


def test_layouts(backend):
    A = spd(33, 1e3, batch=6)
    expected, bound = backend.inverse_root(A, 2, **root_options())
    spread = torch.zeros(6, 70, 40)[:, :66:2, :33]
    spread.copy_(A)
    for view in (A.mT.contiguous().mT, spread):
        assert_same(backend, backend.inverse_root(view, 2, **root_options())[0], expected)
    one = A[:1].expand(4, 33, 33)
    assert_same(backend, backend.inverse_root(one, 2, **root_options())[0], expected[:1].expand(4, 33, 33))
    root, bounds = backend.inverse_root(A.view(2, 3, 33, 33), 2, **root_options())
    assert_same(backend, root, expected.view(2, 3, 33, 33))
    torch.testing.assert_close(bounds, bound.view(2, 3))
    assert_same(backend, backend.inverse_root(A[0], 2, **root_options())[0], expected[0])


def assert_same(backend, actual, expected):
    """The kernels promise bits; BLAS may round a batch otherwise than one matrix."""
    if backend.name == "cpu":
        assert torch.equal(actual, expected)
    else:
        assert relative_error(actual, expected) <= 1e-5


@pytest.mark.parametrize("shape", [(0, 0), (3, 0, 0), (0, 4, 4)])
def test_empty(backend, shape):
    root, bound = backend.inverse_root(torch.empty(shape), 2, **root_options())
    assert root.shape == shape and bound.shape == shape[:-2] and not bound.any()


def test_uses_the_symmetric_part(backend):
    A = spd(20, 1e2)
    skew = torch.randn(20, 20, generator=torch.Generator().manual_seed(3))
    skew = skew - skew.mT
    root, _ = backend.inverse_root(A + skew, 2, **root_options())
    assert relative_error(root, true_inverse_root(A, 2)) <= 2e-4


@pytest.mark.parametrize("n", [1, 5, 16, 33])
def test_writes_nothing_else(backend, n):
    A = spd(n, 1e3)
    expected, _ = backend.inverse_root(A, 2, **root_options())
    bound = torch.empty(2)
    out = in_guard_band((2, n, n), lambda out: backend.inverse_root(A, 2, **root_options(), out=(out, bound)))
    assert torch.equal(out, expected)


@pytest.mark.parametrize("n", [16, 47, 130])
@pytest.mark.parametrize("p", [1, 2, 4])
def test_deterministic_and_independent_of_batch_and_threads(backend, n, p):
    A = spd(n, 1e4, batch=5)
    expected, _ = backend.inverse_root(A, p, **root_options())
    assert torch.equal(backend.inverse_root(A, p, **root_options())[0], expected)
    if backend.name == "composite":
        return
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 7):
            torch.set_num_threads(count)
            assert torch.equal(backend.inverse_root(A, p, **root_options())[0], expected)
            assert torch.equal(backend.inverse_root(A[3], p, **root_options())[0], expected[3])
    finally:
        torch.set_num_threads(threads)


def test_batch_items_do_not_meet(backend):
    A = spd(24, 1e4, batch=5)
    expected, _ = backend.inverse_root(A, 2, **root_options())
    shuffled = [3, 0, 4, 1, 2]
    root, _ = backend.inverse_root(A[shuffled], 2, **root_options())
    assert relative_error(root, expected[shuffled]) <= (0 if backend.name == "cpu" else 1e-6)


@pytest.mark.parametrize("method", ["newton_schulz", "eigh"])
def test_foreach_equals_single_calls(backend, method):
    sizes = [(3, 3), (2, 40, 40), (64, 64), (1, 1), (0, 0), (2, 2, 40, 40), (64, 64), (150, 150)]
    A = [
        spd(s[-1], 1e3, batch=torch.Size(s[:-2]).numel()).view(s) if s[-1] else torch.empty(s) for s in sizes
    ]
    out = [torch.full_like(item, torch.nan) for item in A]
    bounds = [torch.full(item.shape[:-2], torch.nan) for item in A]
    backend.inverse_root_foreach(A, out, bounds, 2, **root_options(method=method))
    for item, root, bound in zip(A, out, bounds, strict=True):
        single, single_bound = backend.inverse_root(item, 2, **root_options(method=method))
        if method == "newton_schulz" and backend.name == "cpu":
            assert torch.equal(root, single)
        elif item.numel():
            assert relative_error(root, single) <= 1e3 * UNIT
        torch.testing.assert_close(bound, single_bound, rtol=1e-6, atol=0)


def test_public_foreach():
    A = [spd(n, 1e3, batch=1)[0] for n in (3, 70, 3)]
    with backends.trace() as served:
        roots, infos = kpop.inverse_root_foreach(A, 4, check=True)
    assert served == {("inverse_root_foreach", "cpu"): 1}
    for item, root, info in zip(A, roots, infos, strict=True):
        assert relative_error(root, true_inverse_root(item, 4)) <= 2e-4
        assert info.finite
    assert kpop.inverse_root_foreach([]) == []
    out = [torch.empty_like(item) for item in A]
    assert all(a is b for a, b in zip(kpop.inverse_root_foreach(A, 4, out=out), out, strict=True))
    assert all(map(torch.equal, out, roots))


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("exponent", [-96, -4, 16, 96])
def test_powers_of_16_scale_exactly(backend, p, exponent):
    A = spd(12, 1e3)
    expected, _ = backend.inverse_root(A, p, **root_options())
    root, _ = backend.inverse_root(A * 2.0**exponent, p, **root_options())
    assert torch.equal(root, expected * 2.0 ** (-exponent / p))


@pytest.mark.parametrize("c", [1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30])
@pytest.mark.parametrize("method", ["newton_schulz", "eigh"])
def test_tiny_and_huge_norms(backend, c, method):
    A = spd(31, 1e3) * c
    for p in (1, 2, 4):
        root, bound = backend.inverse_root(A, p, **root_options(method=method))
        assert relative_error(root, true_inverse_root(A, p)) <= 4e-4
        assert (bound.double() > torch.linalg.eigvalsh(A.double()).amax(-1)).all()


def test_equivariance(backend):
    A = spd(40, 1e3)
    root, _ = backend.inverse_root(A, 2, **root_options())
    order = torch.randperm(40, generator=torch.Generator().manual_seed(5))
    permuted, _ = backend.inverse_root(A[:, order][:, :, order], 2, **root_options())
    assert relative_error(permuted, root[:, order][:, :, order]) <= 2e-5
    Q = torch.linalg.qr(torch.randn(40, 40, generator=torch.Generator().manual_seed(6))).Q
    rotated, _ = backend.inverse_root(Q @ A @ Q.mT, 2, **root_options())
    assert relative_error(rotated, Q @ root @ Q.mT) <= 2e-4


@pytest.mark.parametrize("method", ["newton_schulz", "eigh"])
@pytest.mark.parametrize("n", [1, 3, 17, 64])
def test_zero_in_gives_zero_or_the_damping(backend, n, method):
    A = torch.zeros(2, n, n)
    A[1] = torch.eye(n)
    root, bound = backend.inverse_root(A, 2, **root_options(method=method))
    assert not root[0].any() and bound[0] == 0
    torch.testing.assert_close(root[1], torch.eye(n), rtol=0, atol=2e-4)
    for p in (1, 2, 4):
        damped, _ = backend.inverse_root(A, p, **root_options(method=method, damping=0.25))
        torch.testing.assert_close(damped[0], 0.25 ** (-1 / p) * torch.eye(n), rtol=4e-4, atol=4e-4)


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("method", ["newton_schulz", "eigh"])
@pytest.mark.parametrize("n", [5, 33])
def test_poison_stays_in_its_matrix(backend, poison, method, n):
    A = spd(n, 1e2, batch=3).clone()
    A[1, n - 1, 0] = poison
    expected, _ = backend.inverse_root(A[[0, 2]], 2, **root_options(method=method))
    root, _ = backend.inverse_root(A, 2, **root_options(method=method))
    assert root[1].isnan().all()
    assert relative_error(root[[0, 2]], expected) <= 1e-5
    root, info = kpop.inverse_root(A, method=method, check=True)
    assert info.finite.tolist() == [True, False, True]


def test_repeated_eigenvalues(backend):
    for n in (2, 16, 50):
        for value in (1.0, 3.0):
            root, _ = backend.inverse_root(value * torch.eye(n).expand(2, n, n), 2, **root_options())
            assert relative_error(root, value**-0.5 * torch.eye(n).expand(2, n, n)) <= 2e-4


def test_rank_deficient(backend):
    generator = torch.Generator().manual_seed(2)
    Q = torch.linalg.qr(torch.randn(128, 16, generator=generator)).Q
    A = (Q @ Q.mT)[None]
    root, bound = backend.inverse_root(A, 2, **root_options())
    assert root.isfinite().all()
    # Null directions saturate near the product of the linear coefficients over the root of the bound.
    null = torch.linalg.eigvalsh(root[0].double())[-1] * bound.double().sqrt()
    assert 1000 < null < 3500
    assert relative_error(root @ Q, Q[None]) < 2e-2
    damped, _ = backend.inverse_root(A, 2, **root_options(relative_damping=1e-4))
    assert relative_error(damped, true_inverse_root(A, 2, relative_damping=1e-4)) <= 2e-3


def test_slightly_negative_eigenvalues(backend):
    generator = torch.Generator().manual_seed(2)
    Q = torch.linalg.qr(torch.randn(32, 32, dtype=torch.float64, generator=generator)).Q
    eigvals = torch.ones(32, dtype=torch.float64)
    eigvals[0] = -1e-7
    A = ((Q * eigvals) @ Q.mT).float()
    root, _ = backend.inverse_root(A, 2, **root_options())
    assert root.isfinite().all()
    eigvals[0] = -1e-3
    A = ((Q * eigvals) @ Q.mT).float()
    damped, _ = backend.inverse_root(A, 2, **root_options(damping=2e-3))
    assert relative_error(damped, true_inverse_root(A, 2, damping=2e-3)) <= 2e-4


def test_check_reports_a_negative_eigenvalue():
    A = torch.stack([torch.diag(torch.tensor([1.0, 0.5, -0.1])), torch.eye(3)])
    for backend_dtype in (torch.float32, torch.float64):
        _, info = kpop.inverse_root(A.to(backend_dtype), check=True)
        assert info.finite.tolist() == [False, True]


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


@pytest.mark.parametrize(
    ("A", "options", "error", "message"),
    [
        (torch.eye(3)[0], {}, ValueError, r"A has shape \(3,\), it must be \(\.\.\., rows, columns\)"),
        (torch.zeros(2, 3), {}, ValueError, r"A has shape \(2, 3\), it must be \(\.\.\., n, n\)"),
        (torch.eye(3), {"p": 3}, ValueError, "p is 3, it must be one of 1, 2, 4"),
        (torch.eye(3), {"method": "qr"}, ValueError, "method is 'qr', it must be one of 'auto'"),
        (torch.eye(3), {"precision": "fp8"}, ValueError, "precision is 'fp8', it must be one of 'auto'"),
        (torch.eye(3), {"schedule": "fast"}, ValueError, "schedule is 'fast', it must be 'cushioned'"),
        (torch.eye(3), {"schedule": [(1.5,)]}, ValueError, "schedule has 1 numbers, it must hold 2 finite"),
        (torch.eye(3), {"schedule": []}, ValueError, "schedule has 0 numbers"),
        (torch.eye(3), {"damping": -1.0}, ValueError, "damping is -1.0, it must not be negative"),
        (torch.eye(3), {"damping": torch.nan}, ValueError, "damping is nan, it must not be negative"),
        (torch.eye(3), {"out": torch.eye(4)}, ValueError, r"out is \(4, 4\) torch.float32 on cpu"),
        (torch.eye(3, dtype=torch.int64), {}, TypeError, "A is torch.int64, it must be float32"),
        (torch.eye(3).requires_grad_(), {}, ValueError, "A requires grad"),
    ],
)
def test_rejects(A, options, error, message):
    with pytest.raises(error, match=message):
        kpop.inverse_root(A, **options)


def test_rejects_overlap_and_unequal_lists():
    A = torch.eye(3)
    with pytest.raises(ValueError, match="out0 is written and shares memory with A"):
        kpop.inverse_root(A, out=A)
    with pytest.raises(ValueError, match=r"out\[1\] is written and shares memory with A\[0\]"):
        kpop.inverse_root_foreach([A, torch.eye(3)], out=[torch.empty(3, 3), A])
    with pytest.raises(ValueError, match="out has 1 tensors, it must have 2 like A"):
        kpop.inverse_root_foreach([A, A], out=[torch.empty(3, 3)])
    with pytest.raises(TypeError, match=r"A\[1\] is torch.float64, it must be torch.float32 like A\[0\]"):
        kpop.inverse_root_foreach([A, A.double()])
    with pytest.raises(ValueError, match=r"A\[1\] has shape \(2, 3\), it must be \(\.\.\., n, n\)"):
        kpop.inverse_root_foreach([A, torch.zeros(2, 3)])


def test_registration():
    A = spd(6, 1e2)
    torch.library.opcheck(torch.ops.kpop.inverse_root.default, (A, 2), root_options())
    outs = {"out0": torch.empty_like(A), "out1": torch.empty(2)}
    torch.library.opcheck(torch.ops.kpop.inverse_root.out, (A, 2), root_options() | outs)
    lists = ([A, A[0]], [torch.empty_like(A), torch.empty(6, 6)], [torch.empty(2), torch.empty(())], 2)
    torch.library.opcheck(torch.ops.kpop.inverse_root_foreach.default, lists, root_options())


def test_compiles_without_a_graph_break():
    A = spd(6, 1e2)

    def both(A):
        return kpop.inverse_root(A, 4), kpop.inverse_root_foreach([A, A[0]])[1]

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    for actual, expected in zip(compiled(A), both(A), strict=True):
        assert torch.equal(actual, expected)
