"""Stochastic rounding of the CUDA backend, emulated: unbiased, independent from key to key, alike in shards."""

import pytest

from tests.emulation import cuda_emulator
from tests.emulation.cuda_backend import emulated, operator
from tests.emulation.tools import require_tool
from tests.ops.rounding import PROMISES, ROUNDING


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("op", ROUNDING)
def test_rounding_at_random(request, op, promise):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())
    with emulated() as cuda:
        PROMISES[promise](operator, op)
        ran = {name.partition("<")[0] for name in cuda.launches()}
    assert ran and all(name.startswith(f"kpop::{op.removesuffix('_').removesuffix('_bf16')}") for name in ran)
