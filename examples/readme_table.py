"""Write the demo's table into README.md from the committed runs: ``python examples/readme_table.py``."""

import json
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- demo -->", "<!-- /demo -->"
COLUMNS = (
    "seed",
    "optimizer",
    "final val loss",
    "steps to AdamW's",
    "s to AdamW's",
    "model ms/step",
    "optimizer ms/step",
    "state kB",
)


def main() -> None:
    """Replace what stands between the markers."""
    readme = ROOT / "README.md"
    text = readme.read_text()
    head, tail = text[: text.index(BEGIN)], text[text.index(END) :]
    readme.write_text(f"{head}{BEGIN}\n{section()}\n{tail}")


def section() -> str:
    """Return the table of all committed runs."""
    files = sorted((ROOT / "docs" / "demo").glob("*.json"))
    runs = [run for file in files for run in json.loads(file.read_text())["runs"]]
    return "\n".join([_line(COLUMNS), _line(["---"] * len(COLUMNS)), *map(_row, runs)])


def _row(run: dict) -> str:
    cells = (
        run["seed"],
        run["label"],
        f"{run['final_val_loss']:.3f}",
        run["steps_to_adamw"],
        f"{run['seconds_to_adamw']:.1f}",
        f"{run['model_ms']:.1f}",
        f"{run['optimizer_ms']:.1f}",
        f"{run['state_bytes'] / 1000:,.0f}",
    )
    return _line(cells)


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
