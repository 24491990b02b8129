"""Schedules against published tables, the golden numbers, and what they promise."""

import json
import math
from pathlib import Path

import pytest

from kpop_kernels import coefficients

GOLDEN = json.loads((Path(__file__).parent / "vectors/golden.json").read_text())

# Amsel et al., The Polar Express, before the safety factor.
POLAR_EXPRESS = [
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845749493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    (1.875, -1.25, 0.375),
]
# Grishina et al., for singular values in [1e-3, 1].
CANS_QUINTIC = [
    (8.4703, -25.1081, 18.6293),
    (4.1828, -3.1087, 0.5806),
    (3.9619, -2.9541, 0.5630),
    (3.2866, -2.4647, 0.5074),
    (2.2737, -1.6447, 0.4162),
    (1.8887, -1.2652, 0.3765),
    (1.875, -1.25, 0.375),
]
# √κ of a second stage after [8.5e-4², 1], without cushion.
SECOND_STAGE = [
    (4.7645976577, -4.6258015936),
    (2.2660081190, -0.6056137434),
    (1.9583283723, -0.5640159790),
    (1.6483457248, -0.5210276226),
    (1.5144927914, -0.5020687721),
    (1.5001353139, -0.5000193304),
    (1.5, -0.5),
]


def assert_schedules_close(actual, expected, tolerance):
    assert len(actual) == len(expected)
    for step, (polynomial, wanted) in enumerate(zip(actual, expected, strict=True)):
        for value, number in zip(polynomial, wanted, strict=True):
            assert abs(value - number) <= tolerance, f"step {step}: {polynomial} is not {wanted}"


@pytest.mark.parametrize(("name", "golden"), [("cans", "cans10"), ("cushioned", "cushioned10")])
def test_inverse_root_schedules_are_the_golden_numbers(name, golden):
    assert_schedules_close(
        coefficients.inverse_root_schedule(name), GOLDEN[golden]["coefficients"], tolerance=1e-13
    )


def test_second_stage_without_cushion_is_the_published_table():
    assert_schedules_close(coefficients.schedule(8.5e-4, 7, 0.0), SECOND_STAGE, tolerance=2e-8)


def test_cans_quintic_is_the_published_table():
    assert_schedules_close(coefficients.polar_schedule("cans", 7), CANS_QUINTIC, tolerance=5.1e-5)


def test_polar_express_is_the_published_table_with_its_safety_factor():
    s = 1.01
    expected = [(a / s, b / s**3, c / s**5) for a, b, c in POLAR_EXPRESS[:-1]] + POLAR_EXPRESS[-1:]
    assert_schedules_close(coefficients.polar_schedule("polar_express", 8), expected, tolerance=5e-9)


def test_muon_is_its_constant_set():
    assert coefficients.polar_schedule("muon", 3) == ((3.4445, -4.7750, 2.0315),) * 3


@pytest.mark.parametrize(
    ("lambda_min_rel", "steps", "gemms"),
    [(1e-3, 6, 15), (1e-4, 7, 18), (1e-5, 8, 21), (1e-6, 10, 27), (1e-7, 11, 30), (1e-8, 12, 33)],
)
def test_steps_needed_without_cushion(lambda_min_rel, steps, gemms):
    enough = coefficients.schedule(lambda_min_rel, steps, 0.0)
    short = coefficients.schedule(lambda_min_rel, steps - 1, 0.0)
    x_min = math.sqrt(lambda_min_rel)
    assert coefficients.minimax_error(enough, x_min) < 1e-3 < coefficients.minimax_error(short, x_min)
    assert 3 * steps - 3 == gemms


@pytest.mark.parametrize("name", ["cushioned", "cans"])
def test_schedules_reach_their_error_on_a_dense_grid(name):
    polynomials = coefficients.inverse_root_schedule(name)
    promised = coefficients.minimax_error(polynomials, 8.5e-4)
    worst = 0.0
    for i in range(4001):
        x = 8.5e-4 ** (i / 4000)
        for polynomial in polynomials:
            x = coefficients.evaluate(polynomial, x)
        worst = max(worst, abs(x - 1))
    assert 0.99 * promised < worst <= promised * 1.001
    assert promised < (1e-4 if name == "cushioned" else 3e-5)


def test_shorter_schedules_end_as_close_to_one_as_the_default():
    allowed = coefficients.minimax_error(coefficients.schedule(), coefficients.LAMBDA_MIN_REL**0.5)
    shorter = coefficients.shorter_schedules()
    assert [len(polynomials) for _, polynomials in shorter] == [5, 6, 7, 8]
    assert [least for least, _ in shorter] == pytest.approx([5.9e-3, 9.8e-4, 1.6e-4, 2.7e-5], rel=0.05)
    for least, polynomials in shorter:
        grid = [math.exp(math.log(least) * i / 5000) ** 0.5 for i in range(5001)]
        for polynomial in polynomials:
            grid = [coefficients.evaluate(polynomial, x) for x in grid]
        assert 0.9 * allowed <= max(abs(x - 1) for x in grid) <= allowed


def test_cushion_keeps_polynomials_away_from_zero():
    for step, (a, b) in enumerate(coefficients.schedule()):
        upper = math.sqrt(coefficients.maxima(coefficients.schedule())[step].P)
        assert coefficients.evaluate((a, b), upper) > 0.3
    assert coefficients.evaluate(coefficients.inverse_root_schedule("cans")[0], 1.0) < 0.005


def test_cushioned_tolerates_a_bound_that_is_a_tenth_too_low():
    a, b = coefficients.schedule()[0]
    assert a / -b == pytest.approx(1.11, abs=2e-3)
    a, b = coefficients.inverse_root_schedule("cans")[0]
    assert a / -b == pytest.approx(1.00085, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "Y", "Z", "P"),
    [
        (
            "cans",
            [1, 1.2967, 1.7255, 1.8762, 1.8920, 1.8105, 1.6111, 1.3144, 1.0765, 1.0044, 1.0000],
            [1, 5.1825, 13.4026, 34.4093, 86.7307, 209.087, 457.552, 850.853, 1352.02, 2035.02, 3052.53],
            [1, 3.9824, 3.9546, 3.8839, 3.7106, 3.3218, 2.6084, 1.7307, 1.1595, 1.0089, 1.0000],
        ),
        (
            "cushioned",
            [1, 1.3658, 1.8004, 1.9677, 1.8412, 1.8096, 1.6802, 1.3706, 1.1068, 0.99924, 0.99993],
            [1, 4.9217, 12.100, 29.614, 71.706, 169.28, 377.97, 736.69, 1209.7, 1830.6, 2746.1],
            [1, 3.9833, 3.9590, 3.8999, 3.7600, 3.4457, 2.8251, 1.9493, 1.2611, 1.0229, 1.0002],
        ),
    ],
)
def test_maxima_are_the_published_ones(name, Y, Z, P):
    found = zip(*coefficients.maxima(coefficients.inverse_root_schedule(name)), strict=True)
    for values, expected in zip(found, (Y, Z, P), strict=True):
        assert values == pytest.approx(expected, rel=1e-4)


def test_scales_are_powers_of_two_below_the_limit():
    polynomials = coefficients.schedule()
    scales = coefficients.power_of_two_scales(polynomials)
    for largest, scale in zip(coefficients.maxima(polynomials), scales, strict=True):
        for value, factor in zip(largest, scale, strict=True):
            assert math.frexp(factor)[0] == 0.5
            assert 2**13 < value * factor <= 2**14


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: coefficients.schedule(0.0), "lambda_min_rel is 0.0, it must be between 0 and 1"),
        (lambda: coefficients.schedule(steps=0), "steps is 0, it must be at least 1"),
        (lambda: coefficients.schedule(cushion=1.0), "cushion is 1.0, it must be at least 0 and below 1"),
        (lambda: coefficients.inverse_root_schedule("fast"), "it must be 'cushioned', 'cans' or a sequence"),
        (lambda: coefficients.polar_schedule("fast", 5), "it must be 'polar_express', 'muon', 'cans'"),
        (lambda: coefficients.polar_schedule("muon", 0), "steps is 0, it must be at least 1"),
    ],
)
def test_rejects(call, message):
    with pytest.raises(ValueError, match=message):
        call()
