"""Options of the whole test suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--strict-tools",
        action="store_true",
        help="fail instead of skipping where a compiler or disassembler is missing",
    )
