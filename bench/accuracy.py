"""Measure the errors of inverse roots and polar factors against float64, and write docs/accuracy.md.

    python -m bench.accuracy
    python -m bench.accuracy --backends triton --sizes 512    the other cells stay as they are on the page

The backends of GPUs run in the emulations of the tests, which takes Triton 40 s for a matrix of order 512 and all
of it together an hour. Products of the composite backend in tf32, fp16 and bf16 have their operands rounded as a
GPU does and are added up in float32.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import python_ref.inverse_root
import python_ref.newton_schulz
from bench import emulated, machine, markdown
from bench.case import SPECTRA, frobenius_error, normal, spd
from bench.suite import POLAR, POLAR_STEPS, ROOT
from kpop_kernels import backends

DOCUMENT = machine.ROOT / "docs" / "accuracy.md"
SIZES = (1, 2, 3, 8, 31, 64, 127, 256, 512)
CONDITIONS = (1e3, 1e4, 1e5)
ASPECTS = (1, 4)
RANK, NOISE = 4, 1e-4

TWO_LEVELS = 4.0
"""How much more error is stated where half of the eigenvalues lie at the lower end."""

NOT_MEASURED = "–"

Key = tuple[str, str, int]
"""Where a cell is: the heading above its table, the titles of its row, its order."""


@dataclass(frozen=True)
class Route:
    """One way to compute an inverse root.

    Attributes:
        precision: Precision of its products.
        backend: Backend that computes it.
        method: Its method.
        largest: Largest order that is measured.
    """

    precision: str
    backend: str
    method: str = "newton_schulz"
    largest: int = SIZES[-1]

    @property
    def name(self) -> str:
        """Return what the table calls it."""
        return f"{'eigh' if self.method == 'eigh' else self.precision}, {self.backend}"

    def error(self, A: Tensor, expected: Tensor) -> float:
        """Return the relative Frobenius error of A^(-1/2)."""
        options = ROOT | {"method": self.method, "precision": self.precision}
        with emulated.operator(self.backend, "inverse_root") as inverse_root:
            root, _ = inverse_root(A, **options)
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

    def is_measured(self, n: int, condition: float) -> bool:
        """Tell whether an order has a number: the largest only where an error is stated, emulations being slow."""
        slow = self.backend in emulated.NAMES and n >= 512
        return n <= self.largest and not (slow and self.stated(condition, two_levels=False) is None)


ROUTES = (
    Route("fp32", "cpu"),
    Route("fp32", "composite"),
    Route("fp32", "triton"),
    Route("fp32", "cuda", largest=128),
    Route("fp32", "metal"),
    Route("tf32", "composite"),
    Route("fp16", "composite"),
    Route("fp16", "triton"),
    Route("fp16", "cuda", largest=128),
    Route("bf16", "composite"),
    Route("bf16", "triton"),
    Route("fp32", "cpu", method="eigh"),
    Route("fp32", "triton", method="eigh"),
    Route("fp32", "cuda", method="eigh"),
    Route("fp32", "metal", method="eigh"),
)


def measure(
    names: Iterable[str], sizes: Iterable[int], routes: Sequence[Route] = ROUTES
) -> Iterator[tuple[Key, str]]:
    """Yield the cells of some backends and orders, small orders first."""
    names = set(names)
    for n in sizes:
        for condition in CONDITIONS:
            for route in routes:
                if route.backend not in names or not route.is_measured(n, condition):
                    continue
                for spectrum in SPECTRA:
                    bound = route.stated(condition, two_levels=n == 2 or spectrum == "two")
                    error = route.error(*_roots(n, condition, spectrum))
                    yield (_heading(condition), f"{spectrum} | {route.name}", n), _cell(error, bound)
        if "cpu" in names:
            yield from _polar_cells(n)


def document(cells: dict[Key, str]) -> str:
    """Return the whole page; cells that are not given were not measured."""
    parts = [
        "# Accuracy",
        "Made by `python -m bench.accuracy`. Relative Frobenius errors against float64, of one float32 matrix "
        "each, in a random basis. **Bold** is more than what is stated.",
        "## Inverse square roots",
        'The cushioned schedule; "eigh" is the route over eigenvalues. Four times as much is stated for the '
        'spectrum "two", which has half of its eigenvalues at the lower end, and so for n = 2.',
        "The backends triton, cuda and metal ran in the emulations of the tests: Triton's interpreter, and the "
        "CUDA and Metal sources compiled for a CPU. The interpreter has float32 products where a GPU adds up "
        "three of tf32, and does not round to tf32, which is left out. On CUDA fp32 serves tf32 too and fp16 "
        "serves bf16, on Metal fp32 serves all. The kernels of CUDA end at order 128; at 512 the emulations "
        "run only where an error is stated.",
    ]
    for condition in CONDITIONS:
        titles = ("spectrum", "products", "stated")
        parts += [
            f"### {_heading(condition)}",
            _table(titles, _heading(condition), _root_rows(condition), cells),
        ]
    parts += [
        f"## {POLAR_HEADING}",
        "Five steps of Polar Express on the cpu backend, against the same polynomials of the singular values. "
        f"The low rank is {RANK}, the noise {NOISE:g} of it.",
        _table(("matrix", "shape", "method"), POLAR_HEADING, [(row, row) for row in POLAR_ROWS], cells),
    ]
    return "\n\n".join(parts) + "\n"


def read(text: str) -> dict[Key, str]:
    """Return the cells of a page."""
    cells: dict[Key, str] = {}
    heading, sizes = "", []
    for line in text.splitlines():
        row = line.strip("| ").split(" | ")
        if line.startswith("#"):
            heading = line.strip("# ")
        elif "n = " in line and line.startswith("|"):
            sizes = [int(title.removeprefix("n = ")) for title in row[3:]]
        elif line.startswith("| ") and "---" not in line:
            labels = row[:3] if heading == POLAR_HEADING else row[:2]
            cells |= {(heading, " | ".join(labels), n): cell for n, cell in zip(sizes, row[3:], strict=True)}
    return cells


def main(file: Path = DOCUMENT, arguments: Sequence[str] | None = None) -> None:
    """Write the page, after every cell of a few backends or sizes, so that a run may be stopped."""
    names = tuple(dict.fromkeys(route.backend for route in ROUTES))
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy")
    parser.add_argument("--backends", nargs="+", choices=names, default=names)
    parser.add_argument("--sizes", nargs="+", type=int, choices=SIZES, default=SIZES)
    options = parser.parse_args(arguments)
    cells = read(file.read_text()) if file.exists() else {}
    for key, cell in measure(options.backends, options.sizes):
        cells[key] = cell
        file.write_text(document(cells))


def _heading(condition: float) -> str:
    return f"Condition number {condition:g}"


def _root_rows(condition: float) -> Iterator[tuple[str, str]]:
    for spectrum in SPECTRA:
        for route in ROUTES:
            stated = route.stated(condition, two_levels=spectrum == "two")
            row = f"{spectrum} | {route.name}"
            yield row, f"{row} | {NOT_MEASURED if stated is None else f'{stated:.0e}'}"


def _table(
    titles: Sequence[str], heading: str, rows: Iterable[tuple[str, str]], cells: dict[Key, str]
) -> str:
    lines: list[Sequence[str]] = [(*titles, *(f"n = {n}" for n in SIZES))]
    for row, shown in rows:
        lines.append((*shown.split(" | "), *(cells.get((heading, row, n), NOT_MEASURED) for n in SIZES)))
    return markdown.table(lines)


@lru_cache(maxsize=len(SPECTRA))
def _roots(n: int, condition: float, spectrum: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    A = spd(n, condition, generator, spectrum).to(torch.float32)
    return A, python_ref.inverse_root.inverse_root(A, 2)


def _gaussian(m: int, n: int) -> Tensor:
    return normal((m, n), torch.float32, torch.Generator().manual_seed(m))


def _low_rank(m: int, n: int) -> Tensor:
    generator = torch.Generator().manual_seed(m)
    left, right, noise = (normal(shape, torch.float32, generator) for shape in ((m, RANK), (RANK, n), (m, n)))
    return left @ right / RANK**0.5 + NOISE * noise


POLAR_HEADING = "Polar factors"
MATRICES: dict[str, Callable[[int, int], Tensor]] = {"Gaussian": _gaussian, "low rank plus noise": _low_rank}
POLAR_ROWS = tuple(
    f"{kind} | {'n×n' if aspect == 1 else f'n×{aspect}n'} | {method}"
    for kind in MATRICES
    for aspect in ASPECTS
    for method in ("standard", "gram")
)


def _polar_cells(n: int) -> Iterator[tuple[Key, str]]:
    for row in POLAR_ROWS:
        kind, shape, method = row.split(" | ")
        X = MATRICES[kind](n, n if shape == "n×n" else ASPECTS[1] * n)
        expected = python_ref.newton_schulz.map_singular_values(X, POLAR_STEPS)
        options: dict[str, Any] = POLAR | {"method": method, "restarts": [2]}
        polar = partial(backends.get("cpu").newton_schulz, **options)
        yield (POLAR_HEADING, row, n), _cell(frobenius_error(polar(X), expected), None)


def _cell(error: float, stated: float | None) -> str:
    text = f"{error:.1e}"
    return text if stated is None or error <= stated else f"**{text}**"


if __name__ == "__main__":
    torch.set_num_threads(1)  # sums are then in one order, whatever machine writes the page
    main()
