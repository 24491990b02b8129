"""QClean against its oracle, what it keeps, and the faults of 8-bit state."""

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels.optim import QClean
from python_ref.optim.qclean import QClean as Reference
from tests.optim.test_clean import reference, sizes
from tests.optim.trajectories import run

OPTIONS = {
    "default": {},
    "refresh each step": {"precondition_frequency": 1},
    "sums": {"pool": "sum", "precondition_frequency": 4},
    "bases to nearest": {"u_round": "nearest", "precondition_frequency": 4},
    "bjorck": {"orthonormalize": "bjorck", "precondition_frequency": 4},
    "not clipped": {"clip": False},
}

SHAPES = ((1, 7), (3, 5), (8, 8), (40, 17), (4, 3, 2, 2))
"""One matrix each: blocks of a stack run across its matrices."""


def steps_with_the_oracle(shape, dtype=torch.float64, steps=20, **options):
    def oracle(*args, bound, **kwargs):
        return Reference(
            *args,
            **kwargs,
            bound=1.0 if options.get("clip", True) else torch.inf,
            u_round=options.get("u_round", "stochastic"),
            bjorck=options.get("orthonormalize") == "bjorck",
        )

    def make(params):
        rank, oversampling = sizes(shape)
        return QClean(params, lr=1e-2, rank=rank, oversampling=oversampling, **options)

    return run(shape, make, reference(shape, oracle, **options), steps=steps, dtype=dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_follows_the_oracle_in_float64(shape, options):
    with backends.trace() as served:
        for found, expected, *_ in steps_with_the_oracle(shape, **options):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert served["quantize_int8_foreach", "cpu"] + served["quantize_int8", "cpu"] >= 20
