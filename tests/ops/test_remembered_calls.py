"""Calls that are like one that passed its checks are not checked again; everything that a check sees counts."""

import pytest
import torch

import kpop_kernels
from kpop_kernels import _schema, backends


def adam_arguments():
    """A step of Adam in eigenbases that fits."""
    tensors = {name: torch.rand(4, 3) for name in ("param", "grad", "exp_avg", "exp_avg_sq")}
    settings = dict(lr=1e-3, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0, step=1)
    return tensors | {"Q_L": torch.eye(4), "Q_R": torch.eye(3)} | settings


def served():
    """Make a call be remembered, and return its arguments."""
    for _ in range(2):
        kpop_kernels.kron_adam_(**adam_arguments())
    return adam_arguments()


def shares_memory(arguments):
    return arguments | {"grad": arguments["param"]}


UNFIT = {
    "shared memory": (shares_memory, "param is written and shares memory with grad"),
    "expanded": (lambda a: a | {"param": torch.rand(1, 3).expand(4, 3)}, "param is expanded"),
    "gradient": (lambda a: a | {"param": a["param"].requires_grad_()}, "param requires grad"),
    "step": (lambda a: a | {"step": 0}, "step is 0, it must be at least 1"),
    "shape": (lambda a: a | {"Q_L": torch.eye(3)}, r"Q_L has shape \(3, 3\)"),
    "missing": (lambda a: a | {"Q_L": None, "Q_R": torch.eye(4)}, r"Q_R has shape \(4, 4\)"),
    "dtype": (lambda a: a | {"param": a["param"].to(torch.int32)}, "param is torch.int32"),
    "moment": (lambda a: a | {"exp_avg": a["exp_avg"].half()}, "exp_avg is torch.float16"),
    "number": (lambda a: a | {"beta1": 1.0}, "beta1 is 1.0"),
    "device": (lambda a: a | {"Q_L": torch.eye(4, device="meta")}, "meta"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused_after_calls_that_do(name):
    change, message = UNFIT[name]
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        kpop_kernels.kron_adam_(**change(served()))


@pytest.mark.parametrize("name", UNFIT)
def test_a_call_that_was_refused_is_not_remembered(name):
    change, message = UNFIT[name]
    for _ in range(2):
        with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
            kpop_kernels.kron_adam_(**change(adam_arguments()))


@pytest.fixture
def counted():
    """A fresh memory for symm_mm, whose full path counts."""
    calls = []
    operator = _schema.OPERATORS["symm_mm"]

    def in_full(*args, **kwargs):
        calls.append(operator.name)
        return operator.overloads(backends._routed(operator))[""](*args, **kwargs)

    return backends._remembering(operator, "", in_full=in_full), calls


def product(run, n, **options):
    A = torch.rand(n, n)
    return run(A, A.mT.contiguous(), C=None, **{"alpha": 1.0, "beta": 0.0} | options)


def test_only_the_first_of_calls_that_are_alike_takes_the_full_path(counted):
    run, calls = counted
    with backends.trace() as counter:
        for _ in range(3):
            product(run, 5)
    assert len(calls) == 1
    assert counter == {("symm_mm", "cpu"): 3}
    product(run, 6)
    product(run, 5, alpha=2.0)
    assert len(calls) == 3


def test_a_remembered_call_returns_fresh_results_of_the_right_kind(counted):
    run, _ = counted
    first, second = product(run, 5), product(run, 5)
    assert first.data_ptr() != second.data_ptr()
    assert (second.shape, second.dtype) == ((5, 5), torch.float32)
    assert torch.equal(second, second.mT)


def test_the_memory_is_bounded(counted, monkeypatch):
    monkeypatch.setattr(backends, "_MOST_REMEMBERED", 4)
    run, calls = counted
    for number in range(10):
        product(run, 2, alpha=float(number))
    product(run, 2, alpha=9.0)
    assert len(calls) == 10
    product(run, 2, alpha=0.0)
    assert len(calls) == 11


def test_subclasses_of_tensors_take_the_full_path_each_time(counted):
    class Tagged(torch.Tensor):
        pass

    run, calls = counted
    A = torch.rand(3, 3).as_subclass(Tagged)
    for _ in range(2):
        run(A, A, C=None, alpha=1.0, beta=0.0)
    assert len(calls) == 2
