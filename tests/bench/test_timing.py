"""The protocol: wrong answers get no time, turns are taken, ratios and noise are what they are said to be."""

import itertools
from dataclasses import replace

import pytest
import torch

from bench import timing
from bench.case import Case, Variant, frobenius_error
from bench.limits import Limits
from bench.ops import bench_gram_ema, bench_kron_rotate
from bench.run import Measurement, run
from bench.timing import Effort, WrongAnswerError
from kpop_kernels import backends

FEW = Effort(seconds=0.0, least_rounds=3, most_rounds=3, longest=1.0)


class Ticks:
    """A clock that calls the launch and returns the numbers it was given."""

    def __init__(self, *values):
        self.values = itertools.cycle(values)

    def sample(self, launch):
        launch()
        return next(self.values)


def square_case(*variants, bound=1e-6):
    return Case(
        op="square",
        shape=(4,),
        dtype=torch.float32,
        bytes=32,
        flops=4,
        make=lambda generator: {"x": torch.randn(4, generator=generator)},
        oracle=lambda inputs: (inputs["x"].to(torch.float64) ** 2,),
        bound=bound,
        variants=variants,
    )


def right(inputs):
    return (inputs["x"] ** 2,)


def wrong(inputs):
    return (inputs["x"] ** 2 * (1 + 1e-4),)


def test_a_planted_wrong_kernel_of_this_package_gets_no_time(monkeypatch):
    """A relative error of 1e-4 in one backend: the other one is timed, this one is named."""
    rotate = backends.get("composite").kron_rotate

    def slightly_wrong(*args, out=None, **kwargs):
        return out.copy_(rotate(*args, **kwargs) * (1 + 1e-4))

    monkeypatch.setitem(backends.get("composite")._guarded, "kron_rotate", slightly_wrong)
    case = bench_kron_rotate.case(16, 8, "cpu")
    uncompiled = [variant for variant in case.variants if variant.name != "torch.compile"]
    measurement = Measurement(replace(case, variants=uncompiled))
    measurement.admit("cpu")
    assert "composite" not in measurement.errors
    assert "composite is wrong: relative error 0.0001" in measurement.refused["composite"]
    measurement.measure("cpu", timing.CpuClock(), FEW, seed=0)
    assert "composite" not in measurement.halves
    assert "torch.matmul" in measurement.halves


def test_a_wrong_backend_fails_the_run(monkeypatch):
    monkeypatch.setattr("bench.run.measure", lambda device, timer: Limits({32: 1.0}, {"float32": 1.0}))
    case = square_case(Variant("cpu", wrong, ours=True), Variant("torch", right))
    report = run([case], "cpu", FEW, lambda what: None)
    (entry,) = report["wrong"]
    assert entry["backend"] == "cpu" and entry["case"] == "square 4 float32"
    assert [row["backend"] for row in report["rows"]] == ["torch"]


def test_nan_is_wrong():
    with pytest.raises(WrongAnswerError):
        variant = Variant("nan", lambda inputs: (inputs["x"] * float("nan"),))
        timing.gate(square_case(variant), variant, {"x": torch.ones(4)})


def test_the_gate_leaves_inputs_alone():
    variant = Variant("in place", lambda inputs: (inputs["x"].square_(),))
    inputs = {"x": torch.full((4,), 3.0)}
    assert timing.gate(square_case(variant), variant, inputs) == 0
    assert torch.equal(inputs["x"], torch.full((4,), 3.0))


def test_a_rival_that_fails_is_refused_and_a_backend_that_fails_raises():
    def fails(inputs):
        raise RuntimeError("no such kernel\nand a long trace")

    rival = Measurement(square_case(Variant("torch", right), Variant("rival", fails)))
    rival.admit("cpu")
    assert rival.refused == {"rival": "RuntimeError: no such kernel"}
    with pytest.raises(RuntimeError, match="no such kernel"):
        Measurement(square_case(Variant("cpu", fails, ours=True))).admit("cpu")


def test_variants_take_turns_in_an_order_that_moves():
    calls = []
    launches = {name: lambda name=name: calls.append(name) for name in "abc"}
    samples = timing.take_turns(launches, Ticks(1.0), FEW)
    warm_up, rounds = calls[:9], calls[9:]
    assert warm_up == list("aaabbbccc")
    assert rounds == list("abcbcacab")
    assert {name: len(times) for name, times in samples.items()} == {"a": 3, "b": 3, "c": 3}


def test_effort():
    effort = Effort(seconds=0.0, least_rounds=5, most_rounds=9, longest=1e9)
    assert [effort.enough(rounds, start=0.0) for rounds in (0, 4, 5)] == [False, False, True]
    patient = Effort(seconds=1e9, least_rounds=5, most_rounds=9, longest=1e9)
    assert [patient.enough(rounds, start=0.0) for rounds in (5, 8, 9)] == [False, False, True]
    hurried = Effort(seconds=1e9, least_rounds=5, most_rounds=9, longest=0.0)
    assert [hurried.enough(rounds, start=0.0) for rounds in (1, 2)] == [False, True]


def test_summary():
    times = timing.summary([list(range(0, 50)), list(range(50, 101))])
    assert (times.median, times.p10, times.p90) == (50, 10, 90)


def test_the_ratio_is_paired_by_rounds():
    """The machine is three times slower in every other round: medians would say 1.5, the ratio is 2."""
    own = [[1.0, 3.0, 1.0], [3.0, 3.0]]
    rival = [[2.0, 6.0, 2.0], [6.0, 6.0]]
    assert timing.ratio(rival, own) == 2.0
    with pytest.raises(ValueError):
        timing.ratio(rival, [[1.0], [3.0, 3.0]])


@pytest.mark.parametrize(("second", "is_noisy"), [(1.04, False), (1.06, True), (0.9, True)])
def test_halves_that_disagree_are_noisy(second, is_noisy):
    own, rival = [[1.0] * 5, [1.0] * 5], [[2.0] * 5, [2.0 * second] * 5]
    assert timing.noisy(own, rival) is is_noisy
    assert timing.noisy([[1.0] * 5, [second] * 5]) is is_noisy


def test_a_slow_half_is_noise_of_the_time_but_not_of_the_ratio():
    own, rival = [[1.0] * 5, [2.0] * 5], [[3.0] * 5, [6.0] * 5]
    assert timing.noisy(own)
    assert not timing.noisy(own, rival)


def test_rows_hold_what_was_measured():
    case = square_case(Variant("cpu", right, ours=True), Variant("torch", right))
    measurement = Measurement(case, errors={"cpu": 1e-8, "torch": 0.0})
    measurement.halves = {"cpu": [[2.0, 2.0], [2.0, 2.0]], "torch": [[4.0, 4.0], [5.0, 5.0]]}
    (row,) = measurement.rows(Limits({32: 0.032}, {"float32": 0.002}))
    assert (row.backend, row.median_us, row.error) == ("cpu", 2.0, 1e-8)
    assert row.limit_fraction == pytest.approx(
        1.0
    )  # 4 operations at 0.002 a nanosecond take 2 µs, bytes 1 µs
    assert row.rivals == {"torch": 2.25}
    assert row.noisy == ["torch"]


def test_limits_are_interpolated_and_the_better_ones_count():
    limits = Limits({16: 1.0, 64: 4.0}, {"float32": 10.0, "float16": 1.0})
    assert limits.bandwidth(8) == 1.0 and limits.bandwidth(100) == 4.0
    assert limits.bandwidth(32) == pytest.approx(2.0)
    assert limits.least_us(64, 0, torch.float32) == pytest.approx(0.016)
    assert limits.least_us(0, 10_000, torch.float16) == pytest.approx(1.0)  # widened to float32
    other = Limits({16: 2.0, 64: 3.0}, {"float32": 9.0, "float16": 2.0})
    assert limits.best_of(other) == Limits({16: 2.0, 64: 4.0}, {"float32": 10.0, "float16": 2.0})


def test_frobenius_error_of_zero():
    assert frobenius_error(torch.tensor([3.0, 4.0]), torch.zeros(2)) == 5.0


def test_the_same_seed_gives_the_same_inputs():
    case = bench_gram_ema.case(8, 4, "cpu")
    first, again, other = case.inputs("cpu", 1), case.inputs("cpu", 1), case.inputs("cpu", 2)
    assert torch.equal(first["X"], again["X"])
    assert not torch.equal(first["X"], other["X"])
