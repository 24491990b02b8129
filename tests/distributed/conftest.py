"""One set of processes for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.distributed.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    ranks = Cluster()
    yield ranks
    ranks.close()
