"""Minimax schedules of Newton–Schulz iterations, computed from their formulas.

A schedule is one odd polynomial a step. Each is the best approximation of 1 on the interval that the
polynomials before it have left, so that a few steps carry every x in [l, 1] close to 1. The inverse root
iterates cubics a·x + b·x³ on x = √λ, the polar factor quintics a·x + b·x³ + c·x⁵ on singular values.

A cushion keeps a step from being tuned to the tiny lower end of its interval: the polynomial is fitted to
[max(l, cushion·u), u] and then scaled so that the image of [l, u] is centred on 1. This costs little at the
lower end and keeps every polynomial away from zero on (0, u], where low-precision products would lose all
digits.

Sources:
    Grishina, Smirnov & Rakhuba, Accelerating Newton–Schulz Iteration for Orthogonalization via
    Chebyshev-type Polynomials (2025): optimal odd polynomials and their recursion.
    Amsel, Persson, Musco & Gower, The Polar Express (2025): cushion and safety factor.
    Jordan et al., Muon (2024): the constant quintic.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

Polynomial = tuple[float, ...]
"""Coefficients of x, x³, x⁵, ..."""

Schedule = tuple[Polynomial, ...]
"""One polynomial a step."""

LAMBDA_MIN_REL = 8.5e-4**2
"""Smallest eigenvalue, relative to the bound of the spectrum, that the named inverse-root schedules serve."""

INVERSE_ROOT_STEPS = 10
SECOND_STAGE_STEPS = 7
CUSHION = 0.1

POLAR_MIN_REL = 1e-3
POLAR_EXPRESS_CUSHION = 0.02407327424182761
POLAR_EXPRESS_SAFETY = 1.01

NEWTON_SCHULZ_CUBIC: Polynomial = (1.5, -0.5)
NEWTON_SCHULZ_QUINTIC: Polynomial = (15 / 8, -10 / 8, 3 / 8)
MUON_QUINTIC: Polynomial = (3.4445, -4.7750, 2.0315)

# Below this relative width of the interval the fit is the limit polynomial to rounding.
_CONVERGED = 5e-6


class Fit(NamedTuple):
    """An optimal polynomial and its largest distance from 1 on the interval."""

    polynomial: Polynomial
    error: float


class Maxima(NamedTuple):
    """Largest eigenvalues that Y, Z and P = ZY can reach before a step, over all spectra in [0, 1]."""

    Y: float
    Z: float
    P: float


def evaluate(polynomial: Polynomial, x: float) -> float:
    """Return the value of an odd polynomial."""
    value = 0.0
    for coefficient in reversed(polynomial):
        value = value * x * x + coefficient
    return value * x


def optimal_cubic(l: float, u: float) -> Fit:
    """Return the odd cubic closest to 1 on [l, u].

    The error alternates at l, e and u, where e² = (l² + lu + u²)/3 is the stationary point.
    """
    e = math.sqrt((l * l + l * u + u * u) / 3)
    d = 2 * e**3 + l * u * (l + u)
    return Fit((6 * e * e / d, -2 / d), (2 * e**3 - l * u * (l + u)) / d)


def optimal_quintic(l: float, u: float) -> Fit:
    """Return the odd quintic closest to 1 on [l, u], by Remez exchange.

    The error alternates at l, q, r and u, where q < r are the stationary points of the polynomial.
    """
    if l >= (1 - _CONVERGED) * u:
        return Fit(tuple(c / u ** (2 * i + 1) for i, c in enumerate(NEWTON_SCHULZ_QUINTIC)), 0.0)
    q, r = (3 * l + u) / 4, (l + 3 * u) / 4
    error = math.inf
    while True:
        a, b, c, new_error = _interpolate((l, q, r, u))
        if abs(new_error - error) <= 1e-15 or new_error <= 0:
            return Fit((a, b, c), max(new_error, 0.0))
        error = new_error
        root = math.sqrt(9 * b * b - 20 * a * c)
        q, r = (math.sqrt((-3 * b + sign * root) / (10 * c)) for sign in (-1, 1))


@lru_cache
def schedule(
    lambda_min_rel: float = LAMBDA_MIN_REL, steps: int = INVERSE_ROOT_STEPS, cushion: float = CUSHION
) -> Schedule:
    """Return cubics that carry √λ close to 1 for every λ in [lambda_min_rel, 1].

    Args:
        lambda_min_rel: Smallest eigenvalue relative to the bound of the spectrum.
        steps: Number of steps; `minimax_error` of the result says whether they suffice.
        cushion: 0 for the fastest convergence; 0.1 for robustness in 16-bit products.

    Raises:
        ValueError: An argument is out of range.
    """
    if not 0 < lambda_min_rel < 1:
        raise ValueError(f"schedule: lambda_min_rel is {lambda_min_rel}, it must be between 0 and 1")
    if steps < 1:
        raise ValueError(f"schedule: steps is {steps}, it must be at least 1")
    if not 0 <= cushion < 1:
        raise ValueError(f"schedule: cushion is {cushion}, it must be at least 0 and below 1")
    return tuple(_recursion(optimal_cubic, math.sqrt(lambda_min_rel), steps, cushion))


@lru_cache
def inverse_root_schedule(name: str) -> Schedule:
    """Return a named schedule for A^(-1/2): "cushioned", or "cans" of Online KL Shampoo.

    Raises:
        ValueError: The name is unknown.
    """
    if name == "cushioned":
        return schedule()
    if name == "cans":
        return (*schedule(steps=INVERSE_ROOT_STEPS - 1, cushion=0.0), NEWTON_SCHULZ_CUBIC)
    raise ValueError(f"schedule is {name!r}, it must be 'cushioned', 'cans' or a sequence of (a, b)")


@lru_cache
def shorter_schedules(steps: tuple[int, ...] = (5, 6, 7, 8)) -> tuple[tuple[float, Schedule], ...]:
    """Return schedules with fewer steps than "cushioned" that end as close to 1, each with the least λ it serves.

    λ is relative to the bound of the spectrum, and found by bisection: the error falls as it grows.
    """
    allowed = minimax_error(schedule(), math.sqrt(LAMBDA_MIN_REL))
    found = []
    for count in steps:
        low, high = math.log(LAMBDA_MIN_REL), 0.0
        while high - low > 1e-3:
            middle = (low + high) / 2
            exact = minimax_error(schedule(math.exp(middle), count), math.exp(middle / 2)) <= allowed
            low, high = (low, middle) if exact else (middle, high)
        found.append((math.exp(high), schedule(math.exp(high), count)))
    return tuple(found)


def second_stage() -> Schedule:
    """Return the schedule that takes the square root of A^(-1/2), whose condition number is √κ(A)."""
    return schedule(math.sqrt(LAMBDA_MIN_REL), SECOND_STAGE_STEPS, CUSHION)


@lru_cache
def polar_schedule(name: str, steps: int) -> Schedule:
    """Return a named schedule for the polar factor: "polar_express", "cans" or "muon".

    Polar Express divides its argument by a safety factor, so that rounding cannot push a singular value past
    the interval; the limit polynomial, which is tolerant by itself, is left as it is.

    Raises:
        ValueError: The name is unknown or steps < 1.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}, it must be at least 1")
    if name == "muon":
        return (MUON_QUINTIC,) * steps
    if name == "cans":
        return tuple(_recursion(optimal_quintic, POLAR_MIN_REL, steps, 0.0))
    if name == "polar_express":
        fitted = _recursion(optimal_quintic, POLAR_MIN_REL, steps, POLAR_EXPRESS_CUSHION)
        return tuple(_with_safety(polynomial) for polynomial in fitted)
    raise ValueError(
        f"coefficients is {name!r}, it must be 'polar_express', 'muon', 'cans' or a sequence of (a, b, c)"
    )


def minimax_error(polynomials: Schedule, x_min: float) -> float:
    """Return the largest distance from 1 that a schedule of cubics leaves on [x_min, 1]."""
    l, u = x_min, 1.0
    for a, b in polynomials:
        peak = math.sqrt(-a / (3 * b))
        ends = [evaluate((a, b), l), evaluate((a, b), u)]
        l, u = min(ends), evaluate((a, b), peak) if l <= peak <= u else max(ends)
    return max(1 - l, u - 1)


@lru_cache
def maxima(polynomials: Schedule) -> tuple[Maxima, ...]:
    """Return the largest eigenvalues of Y, Z and P before each step and after the last.

    With x = √λ in [0, 1] they are x·x_k, x_k/x and x_k². The largest x_k follows from step to step, x_k/x is
    largest at x → 0, and x·x_k is searched between the points of a grid.
    """
    x_max, z_max = 1.0, 1.0
    found = [Maxima(1.0, 1.0, 1.0)]
    for step, (a, b) in enumerate(polynomials, start=1):
        peak = math.sqrt(-a / (3 * b))
        x_max = evaluate((a, b), min(peak, x_max))
        z_max *= a
        found.append(Maxima(_largest_y(polynomials[:step]), z_max, x_max * x_max))
    return tuple(found)


def power_of_two_scales(polynomials: Schedule, limit: float = 2.0**14) -> tuple[Maxima, ...]:
    """Return what to multiply Y, Z and P by before each step so that no entry exceeds ``limit``.

    Scales are powers of two, rounded down: multiplying by them is exact. The default limit leaves a factor of
    four below the largest float16.
    """
    return tuple(
        Maxima(*(2.0 ** math.floor(math.log2(limit / largest)) for largest in step))
        for step in maxima(polynomials)
    )


def _recursion(fit: Callable[[float, float], Fit], l: float, steps: int, cushion: float) -> list[Polynomial]:
    u = 1.0
    polynomials = []
    for _ in range(steps):
        polynomial, error = fit(max(l, cushion * u), u)
        centred = 2 / (evaluate(polynomial, l) + 1 + error)
        polynomial = tuple(centred * coefficient for coefficient in polynomial)
        l = min(evaluate(polynomial, l), 1.0)
        u = 2 - l
        polynomials.append(polynomial)
    return polynomials


def _with_safety(quintic: Polynomial) -> Polynomial:
    limit = max(abs(c - n) for c, n in zip(quintic, NEWTON_SCHULZ_QUINTIC, strict=True)) < 1e-7
    s = 1.0 if limit else POLAR_EXPRESS_SAFETY
    return tuple(c / s ** (2 * i + 1) for i, c in enumerate(quintic))


def _interpolate(points: Sequence[float]) -> list[float]:
    """Solve a·x + b·x³ + c·x⁵ ± E = 1 at four points of alternating sign, by Gaussian elimination."""
    rows = [[x, x**3, x**5, (-1.0) ** i, 1.0] for i, x in enumerate(points)]
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(n):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [x - factor * y for x, y in zip(rows[k], rows[i], strict=True)]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def _largest_y(polynomials: Schedule, points: int = 2048) -> float:
    """Return the largest x·x_k over x in [0, 1]: the best grid point, refined between its neighbours.

    Without a cushion the first polynomial maps x = 1 close to 0, so that later steps pass through all their
    peaks once more next to 1; with x = 1 - t⁴ a uniform grid in t is fine enough there.
    """

    def y(t: float) -> float:
        x = image = 1 - t**4
        for polynomial in polynomials:
            image = evaluate(polynomial, image)
        return x * image

    best = max(range(points + 1), key=lambda i: y(i / points))
    low, high = max(best - 1, 0) / points, min(best + 1, points) / points
    while high - low > 1e-9:
        third = (high - low) / 3
        if y(low + third) < y(high - third):
            low += third
        else:
            high -= third
    return max(y((low + high) / 2), y(0.0))
