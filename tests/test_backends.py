"""The availability table and torch's dispatcher agree on what serves what."""

import multiprocessing
import re
from importlib.util import find_spec

import pytest
import torch

import kpop_kernels
from kpop_kernels import _schema, backends

needs_native = pytest.mark.skipif(
    find_spec("kpop_kernels._native") is None, reason="the compiled extension is not built"
)


def overloads(op):
    return [op.qualified_name + overload for overload in op.schemas()]


@pytest.mark.parametrize("op", _schema.OPERATORS.values(), ids=_schema.OPERATORS)
def test_composite_serves_every_operator_on_every_device(op):
    for name in overloads(op):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeExplicitAutograd")
    assert op.name in backends.get("composite").operators


@pytest.mark.parametrize("op", _schema.OPERATORS.values(), ids=_schema.OPERATORS)
@pytest.mark.parametrize("device_type", backends.ORDER)
def test_the_dispatcher_has_a_kernel_where_a_backend_claims_one(op, device_type):
    claims = [
        name
        for name in backends.ORDER[device_type]
        if name != "composite" and backends.get(name).why_not(op.name, device_type) is None
    ]
    for name in overloads(op):
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(name, device_type.upper())
        assert has_kernel == bool(claims), f"{name} on {device_type}: claimed by {claims}"


def call_gram_ema_(dtype=torch.float32):
    kpop_kernels.gram_ema_(torch.zeros(2, 2, dtype=dtype), torch.ones(2, 3), beta=0, alpha=1, side="left")


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_public_function_runs_the_cpu_kernels(dtype):
    with backends.trace() as counter:
        call_gram_ema_(dtype)
    assert counter == {("gram_ema_", "cpu"): 1}
    assert backends.serving("gram_ema_", torch.zeros(1, dtype=dtype)).name == "cpu"


def test_float64_goes_to_composite():
    with backends.trace() as counter:
        call_gram_ema_(torch.float64)
    assert counter == {("gram_ema_", "composite"): 1}


def test_operators_without_a_cpu_kernel_go_to_composite():
    with backends.trace() as counter:
        kpop_kernels.kron_rotate(torch.ones(2, 3), None, None)
    assert counter == {("kron_rotate", backends.serving("kron_rotate", torch.ones(2, 3)).name): 1}


def test_trace_ends_and_nests():
    with backends.trace() as outer:
        with backends.trace() as inner:
            call_gram_ema_()
        call_gram_ema_()
    call_gram_ema_()
    assert (inner.total(), outer.total()) == (1, 2)


def test_trace_does_not_count_refused_calls():
    with backends.trace() as counter, pytest.raises(ValueError, match="S has shape"):
        kpop_kernels.gram_ema_(torch.zeros(3, 3), torch.ones(2, 3), beta=0, alpha=1, side="left")
    assert not counter


def test_unknown_backend():
    with pytest.raises(ValueError, match="backend 'tpu' is unknown, it must be one of composite, cpu"):
        backends.get("tpu")


def test_unknown_operator():
    with pytest.raises(AttributeError, match="backend 'composite' has no attribute 'conv2d'"):
        _ = backends.get("composite").conv2d


@needs_native
def test_a_backend_refuses_what_it_does_not_serve():
    cpu = backends.get("cpu")
    message = (
        "gram_ema_: backend 'cpu' does not serve torch.float64 on cpu, it serves float32, bfloat16, float16"
    )
    with pytest.raises(TypeError, match=re.escape(message)):
        cpu.gram_ema_(torch.zeros(2, 2).double(), torch.ones(2, 3), beta=0.0, alpha=1.0, side="left")


def test_an_absent_backend_says_why(monkeypatch):
    monkeypatch.setattr("kpop_kernels.backends.cpu.absent_because", lambda: "it was left out")
    cpu = backends.Backend("cpu")
    assert cpu.operators == () and cpu.why_not("gram_ema_", "cpu") == "it was left out"
    assert cpu.why_not("gram_ema_", "cuda") == "cpu runs on cpu"
    with pytest.raises(RuntimeError, match="backend 'cpu' is not available: it was left out"):
        _ = cpu.gram_ema_


@needs_native
def test_unknown_instruction_set():
    from kpop_kernels.backends.cpu import native

    with pytest.raises(ValueError, match="no kernels for 'avx9000'"), native.using("avx9000"):
        pass


def step_in_child(tensors, threads):
    torch.set_num_threads(threads)
    backends.get("cpu").kron_adam_(*tensors, None, None, **FORK_SCALARS)


FORK_SCALARS = {
    **{"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0},
    **{"lr": torch.tensor(0.1), "step": torch.tensor(1)},
}


@needs_native
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_run_parallel_kernels(generator):
    # More than one grain of the C++ kernel, less than what torch itself splits over threads.
    tensors = [torch.randn(128, 128, generator=generator) for _ in range(4)]
    tensors[3].square_()
    threads = torch.get_num_threads()
    try:
        step_in_child(tensors, 4)
        child = multiprocessing.get_context("fork").Process(target=step_in_child, args=(tensors, 4))
        child.start()
        child.join(timeout=20)
        hung = child.is_alive()
        if hung:
            child.kill()
            child.join()
        assert not hung and child.exitcode == 0
    finally:
        torch.set_num_threads(threads)


@needs_native
def test_threads_do_not_change_bits(generator):
    tensors = [torch.randn(257, 129, generator=generator) for _ in range(4)]
    tensors[3].square_()
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            copies = [tensor.clone() for tensor in tensors]
            backends.get("cpu").kron_adam_(*copies, None, None, **FORK_SCALARS)
            results.append(copies)
    finally:
        torch.set_num_threads(threads)
    assert all(map(torch.equal, *results))
