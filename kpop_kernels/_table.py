"""Tables of text, as the commands print them."""

from collections.abc import Iterable, Iterator, Sequence


def table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield rows with aligned columns."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
