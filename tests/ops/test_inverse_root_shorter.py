"""The CPU kernels take fewer steps than the default schedule has where the spectrum is proved to allow it."""

import pytest
import torch

from kpop_kernels import coefficients
from python_ref.inverse_root import inverse_root as true_inverse_root
from python_ref.inverse_root import spectrum_bound
from tests.ops.matrices import relative_error, root_options, running, spd

SHORTER = coefficients.shorter_schedules()
ISAS = ("cpu-baseline", "cpu-avx2", "cpu-avx512")
SIZES = (9, 16, 17, 50, 130)


@pytest.fixture(params=ISAS)
def cpu(request):
    with running(request.param) as backend:
        yield backend


def flat(schedule):
    """Return a schedule as one list; equal in float32, but not taken for the default that may be shortened."""
    numbers = [c for step in schedule for c in step]
    return [*numbers[:-1], numbers[-1] * (1 + 1e-12)]


def with_smallest(n, least):
    """Return a matrix whose smallest eigenvalue is `least` of the bound of its spectrum."""
    A = spd(n, 10.0)[0].double()
    for _ in range(60):
        shift = torch.linalg.eigvalsh(A)[0] - least * spectrum_bound(A)
        A = A - shift * torch.eye(n)
    return A.float()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("index", "least"), [(i, least) for i, (least, _) in enumerate(SHORTER)])
def test_takes_the_shortest_schedule_that_serves(cpu, n, index, least):
    rounding = n * 2.0**-24
    served, unserved = with_smallest(n, 1.05 * (least + rounding)), with_smallest(n, 0.95 * least)
    longer = [schedule for _, schedule in SHORTER[index + 1 :]] + [coefficients.schedule()]
    for A, schedules in ((served, [SHORTER[index][1]]), (unserved, longer)):
        root, _ = cpu.inverse_root(A, 2, **root_options())
        candidates = [
            cpu.inverse_root(A, 2, **root_options() | {"schedule": flat(schedule)})[0]
            for schedule in schedules
        ]
        assert any(torch.equal(root, candidate) for candidate in candidates)
        eigvals = torch.linalg.eigvalsh(A.double())
        assert relative_error(root, true_inverse_root(A, 2)) <= 2e-4 * max(1, eigvals[-1] / eigvals[0] / 1e4)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_every_root_by_the_shortest_schedule(cpu, p):
    A = spd(40, 3.0)
    root, _ = cpu.inverse_root(A, p, **root_options())
    five, _ = cpu.inverse_root(A, p, **root_options() | {"schedule": flat(SHORTER[0][1])})
    assert torch.equal(root, five)
    assert relative_error(root, true_inverse_root(A, p)) <= 2e-4 * (2 if p == 1 else 1)


def test_only_the_default_is_shortened(cpu):
    A = spd(40, 3.0)
    cans, _ = cpu.inverse_root(A, 2, **root_options(schedule="cans"))
    assert relative_error(cans, true_inverse_root(A, 2)) <= 3e-5, "fewer steps would leave 1e-4"


def test_a_matrix_that_is_not_definite_is_not_served_by_fewer(cpu):
    eigvals = torch.linspace(1, 0.5, 32, dtype=torch.float64)
    Q = torch.linalg.qr(
        torch.randn(32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ).Q
    for smallest in (0.0, -1e-7):
        eigvals[-1] = smallest
        A = ((Q * eigvals) @ Q.mT).float()
        root, bound = cpu.inverse_root(A, 2, **root_options())
        largest = torch.linalg.eigvalsh(root.double())[-1] * bound.double().sqrt()
        assert 1000 < largest < 3500, "the linear coefficients of all ten steps"


def test_damping_counts(cpu):
    A = torch.zeros(20, 20)
    A[0, 0] = 1
    for relative_damping, index in ((1e-2, 0), (3e-4, 2)):
        options = root_options(relative_damping=relative_damping)
        root, _ = cpu.inverse_root(A, 2, **options)
        short, _ = cpu.inverse_root(A, 2, **options | {"schedule": flat(SHORTER[index][1])})
        assert torch.equal(root, short)


def test_every_matrix_of_a_batch_has_its_own_number_of_steps(cpu):
    A = torch.stack([spd(33, kappa)[0] for kappa in (2.0, 1e3, 1e6, 30.0)])
    together, _ = cpu.inverse_root(A, 2, **root_options())
    for item, root in zip(A, together, strict=True):
        assert torch.equal(root, cpu.inverse_root(item, 2, **root_options())[0])
