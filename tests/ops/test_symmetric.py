import pytest
import torch

import kpop_kernels as kpop
from kpop_kernels import backends
from tests.ops.matrices import UNIT, in_guard_band, relative_error, spd

SHAPES = [(1, 1), (2, 3), (5, 1), (7, 40), (16, 16), (31, 33), (64, 64), (65, 20), (130, 130), (33, 2500)]


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def symmetric(*shape, seed=1):
    A = normal(*shape, seed=seed)
    return A + A.mT


def tolerance(k):
    return 4 * k**0.5 * UNIT


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_symm_mm_matches_float64(backend, n, k):
    A = normal(3, n, k)
    B = A.mT.contiguous()
    with backends.trace() as served:
        plain = backend.symm_mm(A, B, C=None, alpha=1.0, beta=0.0)
    assert served == {("symm_mm", backend.name): 1}
    assert torch.equal(plain, plain.mT)
    product = A.double() @ B.double()
    assert relative_error(plain, product) <= tolerance(k)
    C = symmetric(3, n, n)
    full = backend.symm_mm(A, B, C=C, alpha=-0.5, beta=2.0)
    assert torch.equal(full, full.mT)
    assert relative_error(full, -0.5 * product + 2 * C.double()) <= 2 * tolerance(k)


@pytest.mark.parametrize(("n", "k"), SHAPES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_syrk_matches_float64(backend, n, k, side):
    X = normal(2, n, k) if side == "left" else normal(2, k, n)
    C = symmetric(2, n, n)
    result = backend.syrk(X, C=C, alpha=0.25, beta=-1.0, side=side)
    product = X.double() @ X.double().mT if side == "left" else X.double().mT @ X.double()
    assert torch.equal(result, result.mT)
    assert relative_error(result, 0.25 * product - C.double()) <= 2 * tolerance(k)


def test_product_of_commuting_matrices(backend):
    A = spd(50, 1e3)
    B = torch.linalg.matrix_power(A.double(), 2).float()
    result = backend.symm_mm(A, B, C=None, alpha=1.0, beta=0.0)
    assert torch.equal(result, result.mT)
    assert relative_error(result, A.double() @ B.double()) <= tolerance(50)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_leaves_inputs_unchanged(backend, dtype):
    if dtype not in backend.dtypes:
        pytest.skip(f"{backend.name} does not serve {dtype}")
    A, C = normal(9, 20).to(dtype), symmetric(9, 9).to(dtype)
    inputs = [A, A.mT.contiguous(), C]
    before = [t.clone() for t in inputs]
    result = backend.symm_mm(inputs[0], inputs[1], C=inputs[2], alpha=1.0, beta=1.0)
    gram = backend.syrk(A, C=C, alpha=1.0, beta=1.0, side="left")
    assert all(map(torch.equal, inputs, before))
    expected = A.double() @ A.double().mT + C.double()
    bound = {torch.bfloat16: 2**-8, torch.float16: 2**-11}.get(dtype, 1e-6)
    for actual in (result, gram):
        assert actual.dtype == dtype
        assert relative_error(actual, expected) <= bound


def test_layouts(backend):
    A, C = normal(4, 21, 37), symmetric(4, 21, 21)
    B = A.mT.contiguous()
    expected = backend.symm_mm(A, B, C=C, alpha=1.0, beta=1.0)
    transposed = A.mT.contiguous().mT
    spread = torch.zeros(4, 50, 40)[:, :42:2, :37]
    spread.copy_(A)
    for left in (transposed, spread):
        for right in (B, A.mT, spread.mT):
            actual = backend.symm_mm(left, right, C=C.mT, alpha=1.0, beta=1.0)
            assert relative_error(actual, expected) <= (0 if backend.name == "cpu" else 1e-6)
    grams = [backend.syrk(X, C=C, alpha=1.0, beta=1.0, side="left") for X in (A, transposed, spread)]
    grams.append(backend.syrk(B, C=C, alpha=1.0, beta=1.0, side="right"))
    for gram in grams:
        assert relative_error(gram, expected) <= (0 if backend.name == "cpu" else 1e-6)
    one = A[:1].expand(4, 21, 37)
    assert relative_error(backend.syrk(one, C=None, alpha=1.0, beta=0.0, side="left"), one @ one.mT) <= 1e-6
    strided = torch.full((21, 4, 21), torch.nan).transpose(0, 1)
    backend.syrk(A, C=C, alpha=1.0, beta=1.0, side="left", out=strided)
    assert relative_error(strided, expected) <= 1e-6


@pytest.mark.parametrize(("batch", "n", "k"), [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_empty(backend, batch, n, k):
    X, C = torch.empty(batch, n, k), symmetric(batch, n, n)
    result = backend.syrk(X, C=C, alpha=1.0, beta=2.0, side="left")
    torch.testing.assert_close(result, 2 * C)
    plain = backend.symm_mm(X, X.mT, C=None, alpha=1.0, beta=0.0)
    assert torch.equal(plain, torch.zeros(batch, n, n))


@pytest.mark.parametrize("n", [1, 5, 16, 33, 100])
def test_writes_nothing_else(backend, n):
    X = normal(2, n, 10)
    expected = backend.syrk(X, C=None, alpha=1.0, beta=0.0, side="left")
    out = in_guard_band(
        (2, n, n), lambda out: backend.syrk(X, C=None, alpha=1.0, beta=0.0, side="left", out=out)
    )
    assert torch.equal(out, expected)


def test_addend_is_not_read_when_beta_is_zero(backend):
    X = normal(6, 9)
    result = backend.syrk(X, C=torch.full((6, 6), torch.nan), alpha=1.0, beta=0.0, side="left")
    assert relative_error(result[None], (X @ X.mT)[None]) <= 1e-6


def test_poison_stays_in_its_matrix(backend):
    X = normal(3, 20, 30)
    expected = backend.syrk(X, C=None, alpha=1.0, beta=0.0, side="left")
    X[1, 4, 5] = torch.nan
    result = backend.syrk(X, C=None, alpha=1.0, beta=0.0, side="left")
    assert torch.equal(result[[0, 2]], expected[[0, 2]])
    assert result[1, 4].isnan().all() and result[1, :, 4].isnan().all()
    assert result[1, :4, :4].isfinite().all()


def test_deterministic_and_independent_of_threads(backend):
    A = spd(150, 1e2, batch=1)[0]
    expected = backend.symm_mm(A, A, C=None, alpha=1.0, beta=0.0)
    assert torch.equal(backend.symm_mm(A, A, C=None, alpha=1.0, beta=0.0), expected)
    if backend.name == "composite":
        return
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            assert torch.equal(backend.symm_mm(A, A, C=None, alpha=1.0, beta=0.0), expected)
    finally:
        torch.set_num_threads(threads)


def test_public_functions():
    A, C = spd(40, 1e2), symmetric(2, 40, 40)
    with backends.trace() as served:
        product = kpop.symm_mm(A, A, C=C, beta=0.5)
        gram = kpop.syrk(A, side="right", C=C, beta=0.5)
    assert served == {("symm_mm", "cpu"): 1, ("syrk", "cpu"): 1}
    assert torch.equal(product, gram)
    out = torch.empty_like(A)
    assert kpop.symm_mm(A, A, C=C, beta=0.5, out=out) is out and torch.equal(out, product)
    assert kpop.syrk(A, out=out) is out
    with backends.trace() as served:
        assert kpop.syrk(A.double()).dtype == torch.float64
    assert served == {("syrk", "composite"): 1}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: kpop.symm_mm(torch.eye(3)[0], torch.eye(3)), ValueError, r"A has shape \(3,\)"),
        (
            lambda: kpop.symm_mm(torch.ones(3, 2), torch.ones(3, 2)),
            ValueError,
            r"B has shape \(3, 2\), it must be \(2, 3\)",
        ),
        (
            lambda: kpop.symm_mm(torch.eye(3), torch.eye(3).double()),
            TypeError,
            "B is torch.float64, it must be torch.float32 like A",
        ),
        (lambda: kpop.symm_mm(torch.eye(3), torch.eye(3), beta=1.0), ValueError, "beta is 1.0 without C"),
        (
            lambda: kpop.syrk(torch.ones(3, 2), C=torch.eye(2)),
            ValueError,
            r"C has shape \(2, 2\), it must be \(3, 3\)",
        ),
        (
            lambda: kpop.syrk(torch.eye(3), side="top"),
            ValueError,
            "side is 'top', it must be one of 'left', 'right'",
        ),
        (lambda: kpop.syrk(torch.eye(3).int()), TypeError, "X is torch.int32"),
        (lambda: kpop.syrk(torch.eye(3).requires_grad_()), ValueError, "X requires grad"),
        (lambda: kpop.syrk(torch.eye(3), out=torch.eye(2)), ValueError, r"out is \(2, 2\)"),
    ],
)
def test_rejects(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_rejects_overlap():
    A = torch.eye(3)
    with pytest.raises(ValueError, match="out is written and shares memory with C"):
        kpop.syrk(torch.ones(3, 3), C=A, beta=1.0, out=A)


def test_registration():
    A, C = spd(6, 1e2), symmetric(2, 6, 6)
    weights = {"alpha": 0.5, "beta": 1.0}
    torch.library.opcheck(torch.ops.kpop.symm_mm.default, (A, A), {"C": C, **weights})
    torch.library.opcheck(
        torch.ops.kpop.syrk.default, (A,), {"C": None, "alpha": 1.0, "beta": 0.0, "side": "left"}
    )
    out = torch.empty_like(A)
    torch.library.opcheck(torch.ops.kpop.syrk.out, (A,), {"C": C, **weights, "side": "right", "out": out})


def test_compiles_without_a_graph_break():
    A = spd(6, 1e2)
    compiled = torch.compile(lambda A: kpop.symm_mm(A, A) + kpop.syrk(A), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(A), kpop.symm_mm(A, A) + kpop.syrk(A))
