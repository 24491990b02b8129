"""What an inverse root promises whatever the values: layouts, memory, bits, lists, refusals, registration."""

import pytest
import torch

import kpop_kernels as kpop
from kpop_kernels import backends
from python_ref.inverse_root import inverse_root as true_inverse_root
from tests.ops.matrices import UNIT, in_guard_band, relative_error, root_options, spd, truth


def test_public_function_runs_on_the_cpu_kernels():
    with backends.trace() as served:
        root = kpop.inverse_root(spd(31, 1e4))
    assert served == {("inverse_root", "cpu"): 1}
    assert relative_error(root, truth(31, 1e4, "log", 2)) <= 2e-4


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
