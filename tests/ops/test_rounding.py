"""Stochastic rounding of every operator is unbiased, independent from key to key, and alike in shards."""

import pytest

from tests.ops.blocks import VARIANTS
from tests.ops.launch import Launcher
from tests.ops.rounding import PROMISES, ROUNDING


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("op", ROUNDING)
@pytest.mark.parametrize("variant", VARIANTS)
def test_rounding_at_random(variant, op, promise):
    PROMISES[promise](lambda name: Launcher(name, variant), op)
