"""Training-quality gates: thresholds between a right optimizer and its known faulty variants.

Every threshold holds for the mean over seeds 0, 1, 2 of the protocol in `tests/optim/problems.py`. It lies
between what correct implementations reach and what the faults named with it reach.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

import torch
from torch import nn
from torch.nn.functional import mse_loss

from tests.optim.problems import MakeOptimizer, Result, train_autoencoder

SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Gate:
    """A band in which the mean of a measured number must lie.

    Attributes:
        name: Identifier and optimizer.
        make_optimizer: The optimizer under test, as `train_autoencoder` takes it.
        lr: Peak learning rate.
        measure: The number taken from each run.
        low: Lower edge of the band.
        high: Upper edge of the band.
        stop_after: Steps taken of the 600-step schedule; None means all.
        seeds: Of the runs that are averaged.
    """

    name: str
    make_optimizer: MakeOptimizer
    lr: float
    measure: Callable[[Result], float]
    low: float
    high: float
    stop_after: int | None = None
    seeds: tuple[int, ...] = SEEDS

    def values(self) -> list[float]:
        """The measured number for each seed."""
        runs = (
            train_autoencoder(self.make_optimizer, seed, lr=self.lr, stop_after=self.stop_after)
            for seed in self.seeds
        )
        return [self.measure(run) for run in runs]

    def check(self) -> None:
        """Run all seeds and fail with their values unless the mean is inside the band."""
        values = self.values()
        assert self.low <= mean(values) <= self.high, (
            f"{self.name}: mean {mean(values):.4f} of {values} is outside [{self.low}, {self.high}]"
        )


def train_error(result: Result) -> float:
    """Final error on the training images; the validation error of this problem over-fits."""
    return result.train_sse


def early_drop(result: Result) -> float:
    """Fall of the validation error from the start to step 40, which sees a missing bias correction."""
    return result.curve[0] - result.curve[40]


def first_step_rms(make_optimizer: MakeOptimizer) -> float:
    """‖ΔW‖_F / √(mn) of the first step at rate 1 from W = 0 under a full-rank gradient.

    Bias-corrected Adam moves every coordinate by 1 in its eigenbasis, and orthogonal bases keep the norm.
    """
    generator = torch.Generator().manual_seed(0)
    x, target = (torch.randn(64, width, generator=generator) for width in (24, 16))
    layer = nn.Linear(24, 16, bias=False)
    nn.init.zeros_(layer.weight)
    optimizer = make_optimizer(layer, [layer.weight], 1.0)
    mse_loss(layer(x), target).backward()
    assert torch.linalg.matrix_rank(layer.weight.grad) == 16
    optimizer.step()
    return layer.weight.detach().square().mean().sqrt().item()
