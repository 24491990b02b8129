"""Gates of the package's own optimizers."""

import pytest

from kpop_kernels.optim import KPOP
from tests.optim.gates import Gate, early_drop, first_step_rms, train_error


def kpop(precondition_frequency):
    def make(model, params, lr):
        optimizer = KPOP(params, lr=lr, precondition_frequency=precondition_frequency)
        optimizer.attach(model)
        return optimizer

    return make


GATES = (
    # Without moment transport 0.57, with transport in the wrong direction 0.50.
    Gate("A1 KPOP refreshed every 10 steps", kpop(10), 3e-3, train_error, 0.0, 0.36),
    # Without moment transport 0.35.
    Gate("A2 KPOP refreshed every step", kpop(1), 1e-2, train_error, 0.0, 0.20),
    # Without bias correction 4.54.
    Gate("E KPOP", kpop(10), 1e-2, early_drop, 4.03, 4.37, stop_after=40),
)


def _params(gates):
    return [pytest.param(g, id=g.name, marks=() if g.stop_after else pytest.mark.slow) for g in gates]


@pytest.mark.parametrize("gate", _params(GATES))
def test_training_reaches_what_faulty_variants_do_not(gate):
    gate.check()


def test_gate_f_the_first_step_of_kpop_has_rms_one():
    assert first_step_rms(kpop(10)) == pytest.approx(1, abs=1e-3)
