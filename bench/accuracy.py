"""Measure the errors of inverse roots and polar factors against float64, and write docs/accuracy.md.

    python -m bench.accuracy

Products in tf32, fp16 and bf16 are those of the composite backend, which rounds their operands as a GPU does and
adds up in float32.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import python_ref.inverse_root
import python_ref.newton_schulz
from bench import machine, markdown
from bench.case import SPECTRA, frobenius_error, normal, spd
from bench.suite import POLAR, POLAR_STEPS, ROOT
from kpop_kernels import backends

DOCUMENT = machine.ROOT / "docs" / "accuracy.md"
SIZES = (1, 2, 3, 8, 31, 64, 127, 256, 512)
CONDITIONS = (1e3, 1e5)
ASPECTS = (1, 4)
RANK, NOISE = 4, 1e-4

TWO_LEVELS = 4.0
"""How much more error is stated where half of the eigenvalues lie at the lower end."""


@dataclass(frozen=True)
class Route:
    """One way to compute an inverse root.

    Attributes:
        name: What the table calls it.
        backend: Backend that computes it.
        method: Its method.
        precision: Precision of its products.
    """

    name: str
    backend: str
    method: str = "newton_schulz"
    precision: str = "fp32"

    def error(self, A: Tensor, expected: Tensor) -> float:
        """Return the relative Frobenius error of A^(-1/2)."""
        options = ROOT | {"method": self.method, "precision": self.precision}
        root, _ = backends.get(self.backend).inverse_root(A, **options)
        return frobenius_error(root, expected)

    def stated(self, condition: float, *, two_levels: bool) -> float | None:
        """Return the error that is promised up to a condition number, None where nothing is."""
        error = {
            "fp32": 2e-4 * max(1.0, condition / 1e4),
            "tf32": 8e-3 if condition <= 1e3 else 3e-2,
            "fp16": 8e-3 if condition <= 1e3 else 3e-2,
            "bf16": 5e-2 if condition <= 1e3 else None,
        }[self.precision]
        return error if error is None or not two_levels else error * TWO_LEVELS


ROUTES = (
    Route("fp32, cpu", "cpu"),
    Route("fp32, composite", "composite"),
    Route("tf32, composite", "composite", precision="tf32"),
    Route("fp16, composite", "composite", precision="fp16"),
    Route("bf16, composite", "composite", precision="bf16"),
    Route("eigh, cpu", "cpu", method="eigh"),
)


def document(sizes: Sequence[int] = SIZES) -> str:
    """Return the whole page for matrices of some orders."""
    parts = [
        "# Accuracy",
        "Made by `python -m bench.accuracy`. Relative Frobenius errors against float64, of one float32 matrix "
        "each, in a random basis. **Bold** is more than what is stated.",
        "## Inverse square roots",
        'The cushioned schedule; "eigh" is the route over eigenvalues. Four times as much is stated for the '
        'spectrum "two", which has half of its eigenvalues at the lower end, and so for n = 2.',
    ]
    for condition in CONDITIONS:
        parts += [f"### Condition number {condition:g}", markdown.table(_root_lines(condition, sizes))]
    parts += [
        "## Polar factors",
        "Five steps of Polar Express on the cpu backend, against the same polynomials of the singular values. "
        f"The low rank is {RANK}, the noise {NOISE:g} of it.",
        markdown.table(_polar_lines(sizes)),
    ]
    return "\n\n".join(parts) + "\n"


def main(file: Path = DOCUMENT) -> None:
    """Write the page."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(document())


def _root_lines(condition: float, sizes: Sequence[int]) -> Iterator[Sequence[str]]:
    yield ("spectrum", "products", "stated", *(f"n = {n}" for n in sizes))
    for spectrum in SPECTRA:
        problems = [_roots(n, condition, spectrum) for n in sizes]
        for route in ROUTES:
            stated = route.stated(condition, two_levels=spectrum == "two")
            of_two = route.stated(condition, two_levels=True)
            cells = [
                _cell(route.error(A, root), of_two if n == 2 else stated)
                for n, (A, root) in zip(sizes, problems, strict=True)
            ]
            yield (spectrum, route.name, "–" if stated is None else f"{stated:.0e}", *cells)


def _roots(n: int, condition: float, spectrum: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    A = spd(n, condition, generator, spectrum).to(torch.float32)
    return A, python_ref.inverse_root.inverse_root(A, 2)


def _polar_lines(sizes: Sequence[int]) -> Iterator[Sequence[str]]:
    yield ("matrix", "shape", "method", *(f"n = {n}" for n in sizes))
    for kind, make in (("Gaussian", _gaussian), ("low rank plus noise", _low_rank)):
        for aspect in ASPECTS:
            X = [make(n, aspect * n) for n in sizes]
            expected = [python_ref.newton_schulz.map_singular_values(item, POLAR_STEPS) for item in X]
            for method in ("standard", "gram"):
                polar = partial(
                    backends.get("cpu").newton_schulz, **POLAR | {"method": method, "restarts": [2]}
                )
                errors = [
                    frobenius_error(polar(item), right) for item, right in zip(X, expected, strict=True)
                ]
                shape = "n×n" if aspect == 1 else f"n×{aspect}n"
                yield (kind, shape, method, *(_cell(error, None) for error in errors))


def _gaussian(m: int, n: int) -> Tensor:
    return normal((m, n), torch.float32, torch.Generator().manual_seed(m))


def _low_rank(m: int, n: int) -> Tensor:
    generator = torch.Generator().manual_seed(m)
    left, right, noise = (normal(shape, torch.float32, generator) for shape in ((m, RANK), (RANK, n), (m, n)))
    return left @ right / RANK**0.5 + NOISE * noise


def _cell(error: float, stated: float | None) -> str:
    text = f"{error:.1e}"
    return text if stated is None or error <= stated else f"**{text}**"


if __name__ == "__main__":
    torch.set_num_threads(1)  # sums are then in one order, whatever machine writes the page
    main()
