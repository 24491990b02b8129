"""The protocol of every measurement.

A variant that gives a wrong answer gets no time. The others take turns, one launch each a round, in an order that
moves on every round, so that whatever the machine does besides hits all alike. A comparison is the median over
rounds of the ratio within the round. Everything is measured twice, with new inputs and as far apart in time as the
run allows; where the two halves disagree by more than `NOISE`, the number is marked as noisy, and so it is where a
whole run differs from an earlier one (bench/agreement.py).
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median, quantiles
from typing import Any, Protocol

import torch

from bench.case import Case, Inputs, Variant, frobenius_error

NOISE = 0.05
"""Largest relative difference between halves of a measurement that counts as the same number."""

LONG_LAUNCH_US = 1e5
"""Launches that take longer need no second warm-up."""

Halves = Sequence[Sequence[float]]
"""Samples of one variant: the rounds of each half, in order; variants of a case share their rounds."""

Launch = Callable[[], object]


class WrongAnswerError(Exception):
    """A variant's result is too far from the oracle's.

    Attributes:
        error: How far, or NaN.
    """

    def __init__(self, variant: str, error: float, bound: float) -> None:
        super().__init__(f"{variant} is wrong: relative error {error:.2g}, at most {bound:.2g} is allowed")
        self.error = error


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        seconds: Time for one half of a case, warm-up aside.
        least_rounds: Rounds that are made even if that takes longer, up to `longest`.
        most_rounds: Rounds after which it is enough.
        longest: Seconds after which it is enough, two rounds being made.
    """

    seconds: float
    least_rounds: int
    most_rounds: int
    longest: float

    def enough(self, rounds: int, start: float) -> bool:
        """Tell whether to stop after some rounds, begun at a time of `time.perf_counter`."""
        passed = time.perf_counter() - start
        if rounds < self.least_rounds:
            return rounds >= 2 and passed > self.longest
        return passed > self.seconds or rounds >= self.most_rounds


QUICK = Effort(seconds=0.5, least_rounds=10, most_rounds=200, longest=2.0)
FULL = Effort(seconds=3.0, least_rounds=25, most_rounds=1000, longest=60.0)


@dataclass(frozen=True)
class Summary:
    """Median and spread of samples."""

    median: float
    p10: float
    p90: float


class Clock(Protocol):
    """Times one launch on one kind of device."""

    def sample(self, launch: Launch) -> float:
        """Return the microseconds that a launch takes."""


class CpuClock:
    """Wall time of a call."""

    def sample(self, launch: Launch) -> float:
        """Return the microseconds that a call takes."""
        start = time.perf_counter_ns()
        launch()
        return (time.perf_counter_ns() - start) / 1000


class EventClock:
    """Time on the device between two events, with cold caches."""

    # Larger than the last-level cache of any GPU today.
    FLUSHED_BYTES = 256 * 2**20

    def __init__(self, device: str) -> None:
        self._event: Callable[..., Any] = torch.cuda.Event if device == "cuda" else torch.mps.event.Event
        self._flushed = torch.empty(self.FLUSHED_BYTES, dtype=torch.uint8, device=device)

    def sample(self, launch: Launch) -> float:
        """Return the microseconds that a launch keeps the device busy."""
        start, end = self._event(enable_timing=True), self._event(enable_timing=True)
        # The flush also occupies the device while the host prepares the launch, so that its latency is not timed.
        self._flushed.zero_()
        start.record()
        launch()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1000


def clock(device: str) -> Clock:
    """Return the clock of a device type."""
    return CpuClock() if device == "cpu" else EventClock(device)


def gate(case: Case, variant: Variant, inputs: Inputs) -> float:
    """Launch a variant once and return its error.

    Raises:
        WrongAnswerError: The error is beyond the bound.
    """
    oracle = variant.oracle or case.oracle
    bound = case.bound if variant.bound is None else variant.bound
    expected = oracle({name: tensor.cpu() for name, tensor in inputs.items()})
    results = variant.bind(inputs)()
    if variant.value is not None:
        results = variant.value(results)
    error = max(frobenius_error(r, e) for r, e in zip(results, expected, strict=True))
    if not error <= bound:
        raise WrongAnswerError(variant.name, error, bound)
    return error


def warm_up(launch: Launch, timer: Clock) -> None:
    """Launch without counting, more often what is quick."""
    for _ in range(3):
        if timer.sample(launch) > LONG_LAUNCH_US:
            return


def take_turns(launches: Mapping[str, Launch], timer: Clock, effort: Effort) -> dict[str, list[float]]:
    """Return samples of each launch, measured round by round."""
    names = list(launches)
    for launch in launches.values():
        warm_up(launch, timer)
    samples: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    gc.disable()
    try:
        start, turn = time.perf_counter(), 0
        while not effort.enough(turn, start):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                samples[name].append(timer.sample(launches[name]))
            turn += 1
    finally:
        gc.enable()
    return samples


def summary(halves: Halves) -> Summary:
    """Return median, 10th and 90th percentile of all samples."""
    samples = [sample for half in halves for sample in half]
    deciles = quantiles(samples, n=10, method="inclusive") if len(samples) > 1 else samples * 9
    return Summary(median(samples), deciles[0], deciles[-1])


def ratio(rival: Halves, own: Halves) -> float:
    """Return how many times longer the rival takes: the median over rounds of the ratio within a round."""
    rounds = zip(chain(*rival), chain(*own), strict=True)
    return median(theirs / ours for theirs, ours in rounds)


def noisy(own: Halves, rival: Halves | None = None) -> bool:
    """Tell whether the halves of a time, or of a ratio, disagree by more than `NOISE`."""
    if rival is None:
        values = [median(half) for half in own]
    else:
        values = [ratio([r], [o]) for r, o in zip(rival, own, strict=True)]
    return disagree(values)


def disagree(values: Sequence[float]) -> bool:
    """Tell whether repetitions of a measurement differ by more than `NOISE`."""
    return max(values) > min(values) * (1 + NOISE)
