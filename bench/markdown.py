"""Tables that are generated: short ones between two comments of README.md, whole ones in pages of docs/."""

from collections.abc import Iterable, Sequence

from bench import machine

README = machine.ROOT / "README.md"
DOCS = machine.ROOT / "docs"


def table(lines: Iterable[Sequence[str]]) -> str:
    """Return lines of cells as a Markdown table, the first line its titles."""
    titles, *rest = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in [titles, ["---"] * len(titles), *rest])


def between(text: str, begin: str, end: str, body: str) -> str:
    """Return the text of a README with something new between two of its lines.

    Raises:
        ValueError: The lines are not there.
    """
    first, last = text.find(begin), text.find(end)
    if not 0 <= first < last:
        raise ValueError(f"README.md has no lines {begin!r} and {end!r}, the tables go between them")
    return f"{text[: first + len(begin)]}\n{body}\n{text[last:]}"
