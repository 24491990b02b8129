"""Prints the table of machine code at the end of a run."""

import pytest

from tests.machine_code.report import Row, table

ROWS = pytest.StashKey[list[Row]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = []


@pytest.fixture
def report_row(request):
    """Add a row to the table that is printed at the end."""
    return request.config.stash[ROWS].append


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if rows := config.stash.get(ROWS, []):
        terminalreporter.section("machine code")
        terminalreporter.write_line(table(rows))
