"""Stochastic rounding in Triton's interpreter: unbiased, independent from key to key, alike in shards."""

import pytest

from tests.emulation.triton import operators
from tests.ops.rounding import PROMISES, ROUNDING


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("op", ROUNDING)
def test_rounding_at_random(interpreted, op, promise):
    PROMISES[promise](operators.in_few_programs, op)
    assert f"{op}kernel" in interpreted or f"{op}_kernel" in interpreted
