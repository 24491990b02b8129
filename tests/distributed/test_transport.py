"""Which collectives a step enters: few, and the same on every rank, whatever its own gradients are."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn

from kpop_kernels.distributed import _transport, shard
from tests.distributed.cluster import Cluster
from tests.distributed.parity import OURS, SHAPES, distributed
from tests.optim.conventions.workload import gradient, parameters

Call = tuple[str, int]
"""A collective and the bytes of the buffer that it fills or changes."""

DTYPES = (torch.float32, torch.bfloat16, torch.float64)


@contextmanager
def _recorded() -> Iterator[list[Call]]:
    calls: list[Call] = []

    def recording(name: str, function):
        def call(buffer, *args, **kwargs):
            calls.append((name, buffer.numel() * buffer.element_size()))
            return function(buffer, *args, **kwargs)

        return call

    with (
        mock.patch.object(dist, "all_reduce", recording("all_reduce", dist.all_reduce)),
        mock.patch.object(dist, "broadcast", recording("broadcast", dist.broadcast)),
        mock.patch.object(dist, "all_to_all_single", recording("all_to_all", dist.all_to_all_single)),
        mock.patch.object(_transport, "_all_gather", recording("all_gather", _transport._all_gather)),
    ):
        yield calls


def _steps(name: str, kind: str, options: dict) -> list[list[Call]]:
    """The collectives of each of three steps; in the second and third this rank has few gradients, or none."""
    rank = dist.get_rank()
    whole = [p for dtype in options.get("dtypes", DTYPES) for p in parameters(SHAPES, dtype)]
    params = whole if kind == "DDP" else [nn.Parameter(distributed(p, kind)) for p in whole]
    optimizer = OURS[name].cls(params)
    if kind == "DDP" or "comm_dtype" in options:
        shard(optimizer, comm_dtype=options.get("comm_dtype"))
    taken = []
    for step in (1, 2, 3):
        for index, (parameter, like) in enumerate(zip(params, whole, strict=True)):
            missing = options.get("missing", True) and (step, index % 4) in ((2, rank), (3, 0), (3, 1))
            G = None if missing or (step == 3 and rank == 1) else gradient(like, step, index)
            parameter.grad = G if G is None or kind == "DDP" else distributed(G, kind)
        with _recorded() as calls:
            optimizer.step()
        taken.append(calls)
    return taken


@pytest.mark.parametrize("kind", ("DDP", "FSDP2"))
@pytest.mark.parametrize("name", OURS)
def test_all_ranks_enter_the_same_collectives(cluster: Cluster, name, kind):
    runs = cluster.run(4, _steps, name, kind, {})
    order = [[[collective for collective, _ in calls] for calls in run] for run in runs]
    assert order[1:] == order[:1] * 3
    # All dtypes travel together: flags of all ranks, of the gradients, then parts there and back.
    moved = {"DDP": ["all_gather"], "FSDP2": ["all_to_all", "all_to_all"]}[kind]
    assert order[0][0] == ["all_reduce", "all_reduce", *moved]
    if kind == "FSDP2":
        assert order[0] == [order[0][0]] * 3


@pytest.mark.parametrize("kind, collective", (("DDP", "all_gather"), ("FSDP2", "all_to_all")))
def test_updates_in_bfloat16_are_half_the_bytes(cluster: Cluster, kind, collective):
    options = {"dtypes": (torch.float32,), "missing": False}
    received = []
    for comm_dtype in (None, torch.bfloat16):
        runs = cluster.run(2, _steps, "SOAP", kind, options | {"comm_dtype": comm_dtype})
        received.append(sum([size for name, size in run[0] if name == collective][-1] for run in runs))
    assert 0.5 <= received[1] / received[0] < 0.55  # tensors begin at multiples of 16 bytes


@pytest.mark.parametrize("bucket", (64, 1 << 12))
def test_packed_buckets_fill_the_same_targets(cluster: Cluster, bucket):
    for run in cluster.run(4, _gathered_in_buckets, bucket):
        assert run


def _gathered_in_buckets(bucket: int) -> bool:
    """Gather tensors of several dtypes in buckets that cut them."""
    rank = dist.get_rank()
    given = [
        [torch.arange(n * (r + 1), dtype=dtype) + r for n in (1, 7, 50) for dtype in DTYPES] for r in range(4)
    ]
    targets = [[torch.full_like(tensor, -1) for tensor in tensors] for tensors in given]
    with mock.patch.object(_transport, "BUCKET_BYTES", 4 * bucket), _recorded() as calls:
        _transport.Transport(dist.group.WORLD).gather(given[rank], targets, torch.device("cpu"))
    longest = sum(-(-t.numel() * t.element_size() // 16) * 16 for t in given[3])
    assert calls == [("all_gather", 4 * min(bucket, longest))] * -(-longest // bucket)
    return all(
        torch.equal(a, b) for xs, ys in zip(targets, given, strict=True) for a, b in zip(xs, ys, strict=True)
    )
