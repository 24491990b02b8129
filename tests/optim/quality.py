"""``python -m tests.optim.quality [GATE ...]``: run gates of training and write docs/quality.md.

All gates are run, or those whose name begins with one of the arguments; results of the others are kept. On two
quiet cores the gates A and E take about 3 minutes, the gates L about 8.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from kpop_kernels.optim import SOAP, Clean, Muon, OnlineKLShampoo, QClean, Shampoo
from tests.optim.gates import Gate, train_error
from tests.optim.language import LanguageResult, train_language_model
from tests.optim.test_gates import GATES, kpop, plain

DOCS = Path(__file__).parents[2] / "docs"
RESULTS, PAGE = DOCS / "quality.json", DOCS / "quality.md"


def validation_loss(result: LanguageResult) -> float:
    """Loss on held-out text."""
    return result.val_loss


def language(name: str, make_optimizer, lr: float, high: float) -> Gate:
    """Return a gate on the language model."""
    return Gate(name, make_optimizer, lr, validation_loss, 0.0, high, train=train_language_model)


QUALITY = (
    *GATES,
    Gate("A9 QClean with sums", plain(QClean, rank=32, pool="sum"), 1e-2, train_error, 0.0, 0.445),
    language("L1 KPOP", kpop(10), 1e-2, 1.48),
    language("L1 SOAP", plain(SOAP), 1e-2, 1.48),
    language("L2 Muon", plain(Muon, adjust_lr_fn="match_rms_adamw", weight_decay=0.0), 1e-2, 1.54),
    language("L2 OnlineKLShampoo", plain(OnlineKLShampoo, weight_decay=0.0), 3e-2, 1.56),
    language("L3 Clean", plain(Clean, rank=32), 1e-2, 1.62),
    language("L3 QClean", plain(QClean, rank=32), 1e-2, 1.62),
    language("L Shampoo", plain(Shampoo), 1e-2, 1.71),
)
"""What is reported, and with which limit. No fault was found for the last one to be set apart from: it lies a
twentieth above what a correct implementation reached with one seed."""


@dataclass(frozen=True)
class Row:
    """One gate's outcome; the values are one a seed."""

    name: str
    lr: float
    low: float
    high: float
    values: list[float]

    @property
    def passes(self) -> bool:
        """Whether the mean is inside the band."""
        return self.low <= mean(self.values) <= self.high


def page(rows: list[Row]) -> str:
    """Return the page with the table of all rows."""
    lines = [
        "# Training quality",
        "",
        "Written by `make quality`. A: squared error per image of the digits autoencoder after 600 steps; E: fall",
        "of its validation error in the first 40 steps; L: nats a character of a small language model after 400",
        "steps. Every run is repeated with the seeds 0, 1, 2; the mean must lie in the band, whose edges keep",
        "known faults out (`tests/optim/test_gates.py` says which, `tests/mutations` plants them).",
        "",
        "| gate | lr | band | mean | seeds | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        band = f"≤ {row.high:g}" if not row.low else f"{row.low:g} to {row.high:g}"
        seeds = " ".join(f"{value:.3f}" for value in row.values)
        verdict = "holds" if row.passes else "**fails**"
        lines.append(f"| {row.name} | {row.lr:g} | {band} | {mean(row.values):.3f} | {seeds} | {verdict} |")
    return "\n".join([*lines, ""])


def main(prefixes: list[str]) -> int:
    """Run gates, keep their results, write the page; return 1 if one fails."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for gate in QUALITY:
        if not prefixes or gate.name.startswith(tuple(prefixes)):
            row = Row(gate.name, gate.lr, gate.low, gate.high, gate.values())
            kept[gate.name] = asdict(row)
            print(f"{row.name}: {row.values}, {'holds' if row.passes else 'fails'}", flush=True)
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    rows = [Row(**kept[gate.name]) for gate in QUALITY if gate.name in kept]
    PAGE.write_text(page(rows))
    return int(not all(row.passes for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
