"""What can only go wrong on a GPU: graphs, streams, sizes beyond 2³¹, a second device."""

from collections.abc import Iterator
from typing import Any

import torch

import python_ref.kron
from bench.problem import flat
from bench.suite import problem
from bench.verdict import Prepared, Result, judge, prepare
from kpop_kernels import backends

DTYPE = torch.float32
REPLAYS = 3
SLEEP_CYCLES = 50_000_000
LARGE = (32769, 65536)
"""More than 2³¹ elements."""


def run() -> Iterator[Result]:
    """Try every operator of every backend that a CUDA device has."""
    for name, reason in backends.available().items():
        backend = backends.get(name)
        if reason is not None or (backend.devices and "cuda" not in backend.devices):
            continue
        for op in backend.operators:
            yield graph_replay(op, name)
            yield side_stream(op, name)
            if torch.cuda.device_count() > 1:
                yield second_device(op, name)
        if "kron_adam_" in backend.operators and torch.cuda.mem_get_info()[0] > _bytes_of_large():
            yield beyond_int32(name)


def graph_replay(op: str, backend: str) -> Result:
    """Replay a captured launch several times: the same as launching, with steps counted on the device.

    Operators that count steps read the step at each replay; a graph that had frozen it would repeat the first.
    """
    given = problem(op, DTYPE)
    eager = prepare(op, backend, given, "cuda", scalars_on="cuda")
    for _ in range(REPLAYS):
        expected = eager.launch()
        _count_step(eager)
    graphed = prepare(op, backend, given, "cuda", scalars_on="cuda")
    arguments = flat(list(graphed.tensors.values()))
    originals = [tensor.clone() for tensor in arguments]
    warm_up = torch.cuda.Stream()
    warm_up.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up):
        graphed.launch()
    torch.cuda.current_stream().wait_stream(warm_up)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = graphed.launch()
    for tensor, original in zip(arguments, originals, strict=True):
        tensor.copy_(original)
    for _ in range(REPLAYS):
        graph.replay()
        _count_step(graphed)
    torch.cuda.synchronize()
    return judge(op, backend, "graph", results, expected, DTYPE, given.bound)


def _count_step(prepared: Prepared) -> None:
    """Add 1 to the step on the device, where there is one, or to that of each item."""
    for step in flat([prepared.zero_dim.get("step", [])]):
        step += 1


def side_stream(op: str, backend: str) -> Result:
    """Launch on a stream whose inputs are late: a kernel on another stream would not wait for them."""
    given = problem(op, DTYPE)
    prepared = prepare(op, backend, given, "cuda")
    arguments = flat(list(prepared.tensors.values()))
    late = [tensor.clone() for tensor in arguments]
    for tensor in arguments:
        tensor.zero_()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLEEP_CYCLES)
        for tensor, original in zip(arguments, late, strict=True):
            tensor.copy_(original)
        results = prepared.launch()
    stream.synchronize()
    return judge(op, backend, "side stream", results, given.expected(), DTYPE, given.bound)


def second_device(op: str, backend: str) -> Result:
    """Launch on a device that is not the current one."""
    given = problem(op, DTYPE)
    with torch.cuda.device(0):
        results = prepare(op, backend, given, "cuda:1").launch()
    return judge(op, backend, "second device", results, given.expected(), DTYPE, given.bound)


def beyond_int32(backend: str) -> Result:
    """Take a step of Adam without bases on more elements than 32 bits count, and judge first and last rows."""
    rows = [0, 1, LARGE[0] // 2, LARGE[0] - 1]
    generator = torch.Generator("cuda").manual_seed(0)
    param = torch.randn(LARGE, dtype=torch.bfloat16, device="cuda", generator=generator)
    grad = torch.randn(LARGE, dtype=torch.bfloat16, device="cuda", generator=generator)
    m, v = (torch.zeros(LARGE, device="cuda") for _ in range(2))
    options: dict[str, Any] = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
    before = [tensor[rows].cpu() for tensor in (param, grad, m, v)]
    param0, grad0, m0, v0 = before
    expected = python_ref.kron.adam(param0, grad0, m0, v0, None, None, lr=0.1, step=1, **options)
    lr, step = torch.tensor(0.1), torch.tensor(1.0)
    backends.get(backend).kron_adam_(param, grad, m, v, None, None, lr=lr, step=step, **options)
    results = [tensor[rows] for tensor in (param, m, v)]
    return judge("kron_adam_", backend, "beyond 2³¹", results, expected, torch.bfloat16, bound=16.0)


def _bytes_of_large() -> int:
    """Return what the step needs in plain PyTorch: the tensors and eight float32 temporaries."""
    return LARGE[0] * LARGE[1] * (2 * 2 + 2 * 4 + 8 * 4)
