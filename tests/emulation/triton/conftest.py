"""Triton's interpreter as a fixture."""

from importlib.util import find_spec

import pytest

from tests.emulation.tools import require_tool


@pytest.fixture
def interpreted(request):
    """Interpret every launch of the test; the value is the list of names of launched kernels."""
    require_tool(request, "triton", find_spec("triton") is not None)
    from tests.emulation.triton.interpreter import interpreter

    with interpreter() as launches:
        yield launches


@pytest.fixture
def guarded():
    """Allocate tensors between guard bands, which are checked when the test is over."""
    from tests.emulation.triton.guarded import GuardedTensors

    bands = GuardedTensors()
    yield bands
    bands.check()
