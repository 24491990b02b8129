"""Options and fixtures of the whole test suite."""

from collections.abc import Iterator

import pytest
import torch

from tests.poison import poisoned_allocation


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--strict-tools",
        action="store_true",
        help="a missing compiler or emulator is a failure, not a skip",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let several processes share the work by files, and what is compiled for targets stay with one of them."""
    for item in items:
        folder = item.path.parent
        together = folder if folder.name == "machine_code" else item.path
        item.add_marker(pytest.mark.xdist_group(str(together)))


@pytest.fixture
def generator() -> torch.Generator:
    """The one source of random numbers of a test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def poison() -> Iterator[None]:
    """Uninitialized memory that the package allocates holds NaN."""
    with poisoned_allocation():
        yield
