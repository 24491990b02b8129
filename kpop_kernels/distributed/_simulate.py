"""What a step would cost on many ranks: the plan that ranks would make, and its bytes and times."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from ._layout import Layout, length, rows
from ._ownership import Loads, imbalance
from ._planner import Place, demand_of, places

if TYPE_CHECKING:
    from ..optim._base import MatrixOptimizer

Parallelism = Literal["fsdp2", "ddp"]


@dataclass(frozen=True)
class Transformer:
    """A Llama-style language model: attention of four matrices, SwiGLU of three, embedding and head.

    Attributes:
        width: Features of the residual stream.
        layers: Number of blocks.
        hidden: Features inside SwiGLU.
        vocabulary: Number of tokens.
    """

    width: int
    layers: int
    hidden: int
    vocabulary: int

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield names and parameters on the meta device, in bfloat16."""
        d, f, v = self.width, self.hidden, self.vocabulary
        yield "embedding", _meta(v, d)
        for i in range(self.layers):
            for name in ("q", "k", "v", "out"):
                yield f"{i}.attention.{name}", _meta(d, d)
            for name, shape in (("gate", (f, d)), ("up", (f, d)), ("down", (d, f))):
                yield f"{i}.feed_forward.{name}", _meta(*shape)
            for name in ("attention_norm", "feed_forward_norm"):
                yield f"{i}.{name}", _meta(d)
        yield "norm", _meta(d)
        yield "head", _meta(v, d)


MODELS = {
    "1.3B": Transformer(width=2048, layers=24, hidden=5504, vocabulary=32000),
    "13B": Transformer(width=5120, layers=40, hidden=13824, vocabulary=32000),
}


@dataclass(frozen=True)
class Rates:
    """What a rank does in a second.

    Attributes:
        flops: Operations of the optimizer's work.
        bandwidth: Bytes it sends, while it receives as many.
        latency: Seconds that a message to one other rank takes beyond its bytes.
    """

    flops: float = 1e14
    bandwidth: float = 2.5e10
    latency: float = 1e-5


@dataclass(frozen=True)
class Simulation:
    """A step on some ranks, for each rank: bytes sent and received, operations, bytes of state."""

    sent: list[float]
    received: list[float]
    loads: Loads
    collectives: int

    @property
    def owners(self) -> int:
        """Number of ranks that have anything to do."""
        return sum(work > 0 for work in self.loads.work)

    @property
    def work_imbalance(self) -> float:
        """Largest work over the mean."""
        return imbalance(self.loads.work)

    def compute_seconds(self, rates: Rates) -> float:
        """Return how long the rank with most work takes."""
        return max(self.loads.work) / rates.flops

    def communicate_seconds(self, rates: Rates) -> float:
        """Return how long the rank with most bytes takes, and the messages of all collectives."""
        busiest = max(max(self.sent), max(self.received))
        return busiest / rates.bandwidth + self.collectives * (len(self.sent) - 1) * rates.latency


def simulate(optimizer: "MatrixOptimizer", ranks: int, parallelism: Parallelism = "fsdp2") -> Simulation:
    """Return what a step of an optimizer takes on each rank; every parameter has a gradient of its dtype.

    Args:
        optimizer: An optimizer of parameters on the meta device.
        ranks: Number of ranks.
        parallelism: "fsdp2" cuts every parameter into rows, "ddp" has all of it on every rank.
    """
    loads = Loads.none(ranks)
    demands = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            layout = _layout(tuple(parameter.shape), ranks, parallelism)
            demands[parameter] = demand_of(optimizer, parameter, group, layout, parameter)
    placed = places(demands, loads)
    if parallelism == "ddp":
        sent, received = _gathered(placed, ranks)
        return Simulation(sent, received, loads, collectives=1)
    sent, received = _exchanged(placed, ranks)
    return Simulation(sent, received, loads, collectives=2)


def _exchanged(placed: Mapping[Tensor, Place], ranks: int) -> tuple[list[float], list[float]]:
    """Return bytes of shards of gradient and parameter that go to owners, and of the new parameter, back."""
    sent, received = [0.0] * ranks, [0.0] * ranks
    for parameter, place in placed.items():
        if place.owner is None:
            continue
        for rank in place.layout.holders():
            if rank == place.owner:
                continue
            shard = length(place.layout.blocks[rank]) * parameter.element_size()
            sent[rank] += 2 * shard
            received[place.owner] += 2 * shard
            sent[place.owner] += shard
            received[rank] += shard
    return sent, received


def _gathered(placed: Mapping[Tensor, Place], ranks: int) -> tuple[list[float], list[float]]:
    """Return bytes of an all_gather of equal pieces, each as large as what the rank with most gives."""
    given = [0.0] * ranks
    for parameter, place in placed.items():
        for rank, block in enumerate(place.layout.blocks):
            if place.owner in (None, rank):
                given[rank] += length(block) * parameter.element_size()
    each = (ranks - 1) * max(given)
    return [each] * ranks, [each] * ranks


def _layout(shape: tuple[int, ...], ranks: int, parallelism: Parallelism) -> Layout:
    whole = tuple((0, size) for size in shape)
    return Layout(shape, (whole,) * ranks if parallelism == "ddp" else tuple(rows(shape, ranks)))


def _meta(*shape: Any) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=torch.bfloat16, device="meta"))
