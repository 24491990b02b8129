"""Two runs of one commit: what they do not agree on is noise that neither shows alone."""

from typing import Any

from bench.timing import NOISE

Report = dict[str, Any]

SHORTEST_US = 100.0
"""Times below it depend on more than the code: they may differ from run to run."""


def confirm(report: Report, earlier: Report) -> int:
    """Mark as noisy the numbers of a report that differ from an earlier run's by more than `NOISE`.

    Args:
        report: The report that is marked, in place.
        earlier: A report of the same commit on the same machine.

    Returns:
        How many rivals' ratios were marked that were not marked before.

    Raises:
        ValueError: The reports are of different commits or machines.
    """
    for key in ("commit", "device", "threads"):
        ours, theirs = (which["machine"][key] for which in (report, earlier))
        if ours != theirs:
            raise ValueError(
                f"bench: the earlier report has {key} {theirs}, it must be {ours} as in this run"
            )
    before = {_key(row): row for row in earlier["rows"]}
    marked = 0
    for row in report["rows"]:
        other = before.get(_key(row))
        if other is None:
            continue
        for name, ratio in row["rivals"].items():
            differs = name in other["rivals"] and not _agree(ratio, other["rivals"][name])
            if differs and name not in row["noisy"] and _is_long(row, ratio):
                row["noisy"].append(name)
                marked += 1
    return marked


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["op"], row["backend"], tuple(row["shape"]), row["dtype"], row["setting"]


def _agree(one: float, other: float) -> bool:
    return max(one, other) <= (1 + NOISE) * min(one, other)


def _is_long(row: dict[str, Any], ratio: float) -> bool:
    return min(row["median_us"], row["median_us"] * ratio) > SHORTEST_US
