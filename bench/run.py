"""Runs cases by the protocol and makes rows of them."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bench import machine
from bench.case import Case, Inputs, Variant, dtype_name
from bench.limits import Limits, measure
from bench.timing import Clock, Effort, WrongAnswerError, clock, gate, noisy, ratio, summary, take_turns

Progress = Callable[[str], None]


@dataclass
class Row:
    """One line of the report: how a backend did on a case, and how many times longer each rival took.

    Attributes:
        op: Operator.
        backend: Backend of this package; where it has none yet, the rival that sets the bar.
        ours: Whether it is a backend of this package.
        shape: Sizes.
        dtype: Element type.
        setting: What else tells the case from others.
        median_us: Median time of a launch.
        p10_us: 10th percentile.
        p90_us: 90th percentile.
        error: Relative Frobenius error against the oracle.
        bytes: Least memory traffic.
        flops: Least operations.
        limit_fraction: Least time by the machine's limits, divided by the median time.
        rivals: How many times longer each rival takes: above 1, it loses.
        noisy: Whose numbers the two halves of the run do not agree on: rivals' ratios, and the backend's time
            under its own name.
        refused: Rivals without a time, and why.
    """

    op: str
    backend: str
    ours: bool
    shape: list[int]
    dtype: str
    setting: str
    median_us: float
    p10_us: float
    p90_us: float
    error: float
    bytes: int
    flops: int
    limit_fraction: float
    rivals: dict[str, float]
    noisy: list[str]
    refused: dict[str, str]


@dataclass
class Measurement:
    """A case with everything measured on it.

    Attributes:
        case: The case.
        errors: Error of each variant that may take part.
        refused: Variants that may not, and why.
        halves: Samples of each variant.
    """

    case: Case
    errors: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    halves: dict[str, list[list[float]]] = field(default_factory=dict)

    def admit(self, device: str, *, rivals: bool = True) -> None:
        """Let every variant through the gate, or say why not.

        Args:
            device: Where to launch.
            rivals: Also let rivals take part; they do in any case where this package has no backend.

        Raises:
            RuntimeError: A backend of this package cannot be launched; rivals that cannot are refused.
        """
        inputs = self.case.inputs(device)
        alone = [variant for variant in self.case.variants if variant.ours]
        for variant in self.case.variants if rivals or not alone else alone:
            try:
                self.errors[variant.name] = self._gated(variant, inputs)
            except WrongAnswerError as wrong:
                self.refused[variant.name] = str(wrong)
            except (RuntimeError, ImportError, AttributeError) as failure:
                if variant.ours:
                    raise
                sentence = (str(failure).splitlines() or [""])[0].split(". ")[0]
                self.refused[variant.name] = f"{type(failure).__name__}: {sentence}"
        self.refused |= self.case.left_out
        self.halves = {name: [] for name in self.errors}

    def _gated(self, variant: Variant, inputs: Inputs) -> float:
        with warnings.catch_warnings():
            if not variant.ours:  # what rivals and their compilers warn about is theirs
                warnings.simplefilter("ignore")
            return gate(self.case, variant, inputs)

    def measure(self, device: str, timer: Clock, effort: Effort, seed: int) -> None:
        """Add a half: samples of every admitted variant on inputs of their own."""
        inputs = self.case.inputs(device, seed)
        launches = {variant.name: variant.bind(inputs) for variant in self.admitted}
        if not launches:
            return
        for name, samples in take_turns(launches, timer, effort).items():
            self.halves[name].append([sample / self.case.repeats for sample in samples])

    @property
    def admitted(self) -> list[Variant]:
        """Variants that passed the gate."""
        return [variant for variant in self.case.variants if variant.name in self.errors]

    def rows(self, limits: Limits) -> list[Row]:
        """Return a row for each backend of this package, or for each rival where there is none."""
        subjects = [variant for variant in self.admitted if variant.ours] or self.admitted
        return [self._row(variant, limits) for variant in subjects]

    def _row(self, variant: Variant, limits: Limits) -> Row:
        case, name = self.case, variant.name
        own = self.halves[name]
        times = summary(own)
        others = {rival: halves for rival, halves in self.halves.items() if rival != name}
        unsure = [rival for rival, halves in others.items() if noisy(own, halves)]
        return Row(
            op=case.op,
            backend=name,
            ours=variant.ours,
            shape=list(case.shape),
            dtype=dtype_name(case.dtype),
            setting=case.setting,
            median_us=times.median,
            p10_us=times.p10,
            p90_us=times.p90,
            error=self.errors[name],
            bytes=case.bytes,
            flops=case.flops,
            limit_fraction=limits.least_us(case.bytes, case.flops, case.dtype) / times.median,
            rivals={rival: ratio(halves, own) for rival, halves in others.items()},
            noisy=([name] if noisy(own) else []) + unsure,
            refused=self.refused,
        )


def run(cases: Sequence[Case], device: str, effort: Effort, progress: Progress) -> dict[str, Any]:
    """Measure cases and return the report: machine, limits, rows, and backends that gave wrong answers.

    The limits are measured before, between the halves and after, and the highest count; the machine is described
    first, before the measurement itself is its load.
    """
    report: dict[str, Any] = {"machine": machine.header(device)}
    start = time.perf_counter()
    timer = clock(device)
    progress("limits of the machine")
    limits = measure(device, timer)
    measurements = [Measurement(case) for case in cases]
    with torch.no_grad():
        for measurement in measurements:
            progress(f"check {measurement.case.label}")
            measurement.admit(device)
        for half in range(2):
            progress("limits of the machine")
            limits = limits.best_of(measure(device, timer))
            for measurement in measurements:
                progress(f"time {measurement.case.label} ({half + 1} of 2)")
                measurement.measure(device, timer, effort, seed=half)
    progress("limits of the machine")
    limits = limits.best_of(measure(device, timer))
    report["limits"] = limits.report()
    report["rows"] = [vars(row) for m in measurements for row in m.rows(limits)]
    report["wrong"] = [
        {"case": m.case.label, "backend": variant.name, "reason": m.refused[variant.name]}
        for m in measurements
        for variant in m.case.variants
        if variant.ours and variant.name in m.refused
    ]
    report["machine"]["seconds"] = round(time.perf_counter() - start, 1)
    return report
