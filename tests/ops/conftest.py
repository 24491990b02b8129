"""The backends that symmetric operators are tested on."""

from collections.abc import Iterator

import pytest

from kpop_kernels.backends import Backend
from tests.ops.matrices import BACKENDS, running


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Yield every backend, the C++ kernels once for each instruction set of this processor."""
    with running(request.param) as found:
        yield found
