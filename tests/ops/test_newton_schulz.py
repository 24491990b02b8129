import pytest
import torch

import kpop_kernels as kpop
from kpop_kernels import backends, coefficients
from kpop_kernels.backends.cpu.newton_schulz import _products, pays
from python_ref import newton_schulz as reference
from tests.ops.matrices import relative_error

SHAPES = [(1, 1), (1, 9), (9, 1), (3, 5), (16, 16), (31, 64), (64, 31), (128, 128), (65, 257), (64, 4096)]


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def low_rank_plus_noise(m, n, rank=4, noise=1e-4):
    return gaussian(1, m, rank) @ gaussian(1, rank, n, seed=1) / rank**0.5 + noise * gaussian(1, m, n, seed=2)


def expected_map(X, name, steps=5):
    return reference.map_singular_values(X, coefficients.polar_schedule(name, steps))


def polar_options(name="polar_express", **changed):
    """Return the operator's arguments behind ``newton_schulz(X)``, some of them changed."""
    steps = coefficients.polar_schedule(name, 5)
    options = {"method": "auto", "restarts": [2], "normalize": True, "eps": 0.0}
    return {"coefficients": [c for step in steps for c in step]} | options | changed


@pytest.mark.parametrize(("m", "n"), SHAPES)
@pytest.mark.parametrize("name", ["polar_express", "cans", "muon"])
@pytest.mark.parametrize("method", ["standard", "gram"])
def test_matches_reference(backend, m, n, name, method):
    X = gaussian(2, m, n)
    with backends.trace() as served:
        result = backend.newton_schulz(X, **polar_options(name, method=method))
    assert served == {("newton_schulz", backend.name): 1}
    # The map is steep for the small singular values of square matrices, and at 1 without a cushion.
    steep = 5e-3 if name == "cans" and min(m, n) == 1 else 5e-4 if m == n else 4e-5
    assert relative_error(result, expected_map(X, name)) <= steep


@pytest.mark.parametrize(("m", "n"), SHAPES)
@pytest.mark.parametrize("name", ["polar_express", "cans", "muon"])
@pytest.mark.parametrize("method", ["standard", "gram"])
def test_float64_is_exact(m, n, name, method):
    X = gaussian(2, m, n)
    with backends.trace() as served:
        result = kpop.newton_schulz(X.double(), coefficients=name, method=method)
    assert served == {("newton_schulz", "composite"): 1}
    assert relative_error(result, expected_map(X, name)) <= 1e-9


def test_large_symmetric_products_are_halves_on_the_cpu():
    """One triangle mirrored is symmetric bit for bit; what is too small to pay is BLAS's own product."""
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        large = gaussian(1, 130, 200)
        products = _products(large)
        R = products.gram(large)
        assert pays(*large.shape) and torch.equal(R, R.mT)
        T = products.commuting(R, R, C=R, alpha=0.5, beta=-2.0)
        assert torch.equal(T, T.mT)
        assert relative_error(T, 0.5 * R.double() @ R.double() - 2 * R.double()) <= 1e-6
        small = gaussian(1, 100, 20)
        assert not pays(*small.shape)
        assert torch.equal(products.gram(small), torch.bmm(small, small.mT))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("shape", [(160, 640), (640, 160)])
def test_halves_keep_low_rank_plus_noise(backend, shape):
    """The products with a mirrored triangle must not undo what the restart is for."""
    X = low_rank_plus_noise(*shape)
    result = backend.newton_schulz(X, **polar_options(method="gram", restarts=[2, 4]))
    assert relative_error(result, expected_map(X, "polar_express")) <= 5e-3


def test_auto_takes_the_gram_form_for_long_matrices():
    for shape, method in (((20, 39), "standard"), ((20, 40), "gram"), ((40, 20), "gram")):
        X = gaussian(*shape)
        assert torch.equal(kpop.newton_schulz(X), kpop.newton_schulz(X, method=method))
    X = gaussian(20, 40)
    assert not torch.equal(kpop.newton_schulz(X), kpop.newton_schulz(X, method="standard"))


@pytest.mark.parametrize("shape", [(64, 256), (256, 64)])
def test_gram_form_needs_its_restart_on_low_rank_plus_noise(shape):
    X = low_rank_plus_noise(*shape)
    expected = expected_map(X, "polar_express")
    assert relative_error(kpop.newton_schulz(X, method="standard"), expected) <= 5e-3
    assert relative_error(kpop.newton_schulz(X, method="gram"), expected) <= 5e-3
    twice = kpop.newton_schulz(X, method="gram", restarts=(2, 4))
    assert relative_error(twice, expected) <= 5e-3
    assert torch.linalg.svdvals(kpop.newton_schulz(X, method="gram")).max() < 1.2
    without = kpop.newton_schulz(X, method="gram", restarts=())
    assert relative_error(without, expected) > 10 * relative_error(twice, expected)


def test_eight_steps_reach_the_polar_factor():
    X = gaussian(2, 20, 50)
    assert relative_error(kpop.newton_schulz(X, steps=8), reference.polar_factor(X)) <= 2e-5
    assert relative_error(kpop.newton_schulz(X.double(), steps=9), reference.polar_factor(X)) <= 1e-9


def test_zeropower_is_muons():
    X = gaussian(12, 30)
    expected = X.double() / (X.double().norm() + 1e-7)
    for _ in range(5):
        A = expected @ expected.mT
        expected = 3.4445 * expected + (-4.7750 * A + 2.0315 * A @ A) @ expected
    assert relative_error(kpop.zeropower_via_newtonschulz5(X)[None], expected[None]) <= 1e-5
    assert not kpop.zeropower_via_newtonschulz5(torch.zeros(3, 4)).any()
    tiny = 1e-7 * X / X.norm()
    assert (
        kpop.zeropower_via_newtonschulz5(tiny, steps=1).norm()
        < 0.6 * kpop.zeropower_via_newtonschulz5(X, 1).norm() * 2
    )


def test_shampoo_chapter_step():
    G = torch.tensor([[3.0, 0.0, 1.0], [1.0, 2.0, 0.0]])
    expected = reference.polar_factor(G)
    torch.testing.assert_close(kpop.newton_schulz(G, steps=8).double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["standard", "gram"])
def test_zero_rows_and_low_rank_stay_finite(method):
    X = torch.zeros(4, 6, 20)
    X[1, 2, 3] = 5.0
    X[2] = gaussian(6, 1) @ gaussian(1, 20, seed=1)
    X[3, :3] = gaussian(3, 20)
    result = kpop.newton_schulz(X, method=method)
    assert result.isfinite().all()
    assert not result[0].any()
    assert result[1].count_nonzero() == 1 and 0.84 < result[1, 2, 3] < 1.13
    assert not result[3, 3:].any()
    assert relative_error(result[1:], expected_map(X[1:], "polar_express")) <= 1e-4


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
@pytest.mark.parametrize("method", ["standard", "gram"])
def test_poison_stays_in_its_matrix(poison, method):
    X = gaussian(3, 8, 20)
    expected = kpop.newton_schulz(X, method=method)
    X[1, 3, 4] = poison
    result = kpop.newton_schulz(X, method=method)
    assert relative_error(result[[0, 2]], expected[[0, 2]]) <= 1e-6
    assert result[1].isnan().all()


@pytest.mark.parametrize("exponent", [-96, -7, 40, 96])
def test_powers_of_two_change_nothing(exponent):
    X = gaussian(2, 10, 30)
    assert torch.equal(kpop.newton_schulz(X * 2.0**exponent), kpop.newton_schulz(X))


def test_equivariance():
    X = gaussian(1, 12, 40)
    Q_L = torch.linalg.qr(gaussian(12, 12, seed=1)).Q
    Q_R = torch.linalg.qr(gaussian(40, 40, seed=2)).Q
    result = kpop.newton_schulz(X)
    assert relative_error(kpop.newton_schulz(Q_L @ X @ Q_R), Q_L @ result @ Q_R) <= 2e-5
    assert relative_error(kpop.newton_schulz(X.mT), result.mT) <= 1e-6
    assert relative_error(kpop.newton_schulz(-X), -result) <= 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("method", ["standard", "gram"])
def test_leaves_inputs_unchanged(dtype, method):
    X = gaussian(10, 30).to(dtype)
    before = X.clone()
    result = kpop.newton_schulz(X, method=method)
    assert torch.equal(X, before) and result.dtype == dtype
    bound = {torch.bfloat16: 2**-8, torch.float16: 2**-11}.get(dtype, 4e-5)
    assert relative_error(result[None], expected_map(X, "polar_express")[None]) <= bound


def test_without_normalization():
    X = gaussian(10, 30)
    X = X / torch.linalg.matrix_norm(X, 2)
    expected = X.double()
    for a, b, c in coefficients.polar_schedule("polar_express", 5):
        A = expected @ expected.mT
        expected = a * expected + (b * A + c * A @ A) @ expected
    result = kpop.newton_schulz(X, coefficients="polar_express", normalize=False)
    assert relative_error(result[None], expected[None]) <= 1e-4


def test_own_coefficients():
    X = gaussian(5, 9)
    own = kpop.newton_schulz(X, coefficients=[(15 / 8, -10 / 8, 3 / 8)] * 12)
    assert relative_error(own[None], reference.polar_factor(X)[None]) <= 1e-4


def test_layouts_and_batches():
    X = gaussian(6, 14, 30)
    expected = kpop.newton_schulz(X)
    spread = torch.zeros(6, 28, 60)[:, ::2, ::2]
    spread.copy_(X)
    for view in (X.mT.contiguous().mT, spread, X.view(2, 3, 14, 30)):
        assert relative_error(kpop.newton_schulz(view).view_as(X), expected) <= 1e-5
    one = X[:1].expand(6, 14, 30)
    assert relative_error(kpop.newton_schulz(one), expected[:1].expand(6, 14, 30)) <= 1e-5
    out = torch.full_like(X, torch.nan)
    assert kpop.newton_schulz(X, out=out) is out and torch.equal(out, expected)
    for shape in ((0, 3, 4), (2, 0, 4), (2, 4, 0)):
        assert kpop.newton_schulz(torch.empty(shape)).shape == shape


def test_deterministic():
    X = gaussian(3, 40, 100)
    assert torch.equal(kpop.newton_schulz(X), kpop.newton_schulz(X))


def test_foreach_equals_single_calls():
    X = [gaussian(*s) for s in ((4, 9), (2, 9, 4), (7, 7), (1, 1), (4, 9), (3, 0, 5))]
    with backends.trace() as served:
        results = kpop.newton_schulz_foreach(X)
    assert served == {("newton_schulz_foreach", "cpu"): 1}
    for item, result in zip(X, results, strict=True):
        assert result.shape == item.shape
        torch.testing.assert_close(result, kpop.newton_schulz(item), rtol=1e-5, atol=1e-5)
    assert kpop.newton_schulz_foreach([]) == []
    out = [torch.empty_like(item) for item in X]
    assert all(a is b for a, b in zip(kpop.newton_schulz_foreach(X, out=out), out, strict=True))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: kpop.newton_schulz(torch.ones(3)),
            ValueError,
            r"X has shape \(3,\), it must be \(\.\.\., rows",
        ),
        (
            lambda: kpop.newton_schulz(torch.eye(3), method="fast"),
            ValueError,
            "method is 'fast', it must be one of 'auto'",
        ),
        (lambda: kpop.newton_schulz(torch.eye(3), coefficients="fast"), ValueError, "coefficients is 'fast'"),
        (
            lambda: kpop.newton_schulz(torch.eye(3), coefficients=[(1.0, 2.0)]),
            ValueError,
            "coefficients has 2 numbers, it must hold 3",
        ),
        (lambda: kpop.newton_schulz(torch.eye(3), steps=0), ValueError, "steps is 0, it must be at least 1"),
        (
            lambda: kpop.newton_schulz(torch.eye(3), restarts=(-1,)),
            ValueError,
            r"restarts\[0\] is -1, it must not be negative",
        ),
        (lambda: kpop.newton_schulz(torch.eye(3).int()), TypeError, "X is torch.int32"),
        (lambda: kpop.newton_schulz(torch.eye(3).requires_grad_()), ValueError, "X requires grad"),
        (
            lambda: kpop.newton_schulz_foreach([torch.eye(3), torch.eye(3).double()]),
            TypeError,
            r"X\[1\] is torch.float64",
        ),
        (
            lambda: kpop.newton_schulz_foreach([torch.eye(3)], out=[]),
            ValueError,
            "out has 0 tensors, it must have 1 like X",
        ),
    ],
)
def test_rejects(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_rejects_overlap():
    X = torch.eye(3)
    with pytest.raises(ValueError, match="out is written and shares memory with X"):
        kpop.newton_schulz(X, out=X)


def test_registration_and_compile():
    X = gaussian(4, 9)
    options = {
        "coefficients": [1.875, -1.25, 0.375],
        "method": "auto",
        "restarts": [2],
        "normalize": True,
        "eps": 0.0,
    }
    torch.library.opcheck(torch.ops.kpop.newton_schulz.default, (X,), options)
    torch.library.opcheck(torch.ops.kpop.newton_schulz_foreach.default, ([X], [torch.empty_like(X)]), options)
    compiled = torch.compile(lambda X: kpop.newton_schulz(X), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(X), kpop.newton_schulz(X))
