import pytest
import torch

from tests.optim.gates import Gate, first_step_rms, train_error
from tests.optim.problems import autoencoder, digits, rate_factor, reconstruction_error, train_autoencoder


def adamw(model, params, lr):
    return torch.optim.AdamW(params, lr=lr, betas=(0.9, 0.95), weight_decay=0.0)


def muon(model, params, lr):
    return torch.optim.Muon(params, lr=lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")


def test_the_digits_are_split_into_1437_and_360_images_of_64_pixels():
    train, val = digits()
    assert (train.shape, val.shape) == ((1437, 64), (360, 64))
    assert (train.min(), train.max()) == (0, 1)


@pytest.mark.parametrize(("seed", "error"), [(0, 11.308), (1, 11.604), (2, 11.549)])
def test_the_untrained_network_has_the_error_of_the_protocol(seed, error):
    assert reconstruction_error(autoencoder(seed), digits()[1]) == pytest.approx(error, abs=6e-4)


def test_the_network_leaves_the_global_random_state_alone():
    before = torch.get_rng_state()
    autoencoder(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_rate_warms_up_stays_and_falls_to_two_percent():
    factors = [rate_factor(step, 600) for step in range(600)]
    assert factors[0] == pytest.approx(1 / 60)
    assert set(factors[59:301]) == {1.0}
    assert factors[450] == 0.5
    assert factors[599] == 0.02


def test_a_run_is_a_function_of_its_seed():
    runs = [train_autoencoder(adamw, seed, lr=1e-3, stop_after=20) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    assert sorted(runs[0].curve) == [0, 10, 20]


def test_the_biases_are_trained_by_adamw_and_only_the_matrices_by_the_optimizer_under_test():
    given = []

    def make(model, params, lr):
        given.append([param.ndim for param in params])
        return adamw(model, params, lr)

    train_autoencoder(make, 0, lr=1e-3, stop_after=1)
    train_autoencoder(make, 0, lr=1e-3, stop_after=1, aux_lr=None)
    assert given == [[2] * 8, [2, 1] * 8]


@pytest.mark.slow
def test_gate_a11_muon_reaches_the_error_it_is_known_for():
    Gate("A11 torch.optim.Muon", muon, 1e-2, train_error, 0.19, 0.23).check()


def test_a_gate_fails_outside_its_band():
    gate = Gate("AdamW", adamw, 1e-3, train_error, 0.0, 1e-3, stop_after=1)
    with pytest.raises(AssertionError, match="AdamW: mean"):
        gate.check()


def test_gate_f_the_first_step_of_adam_has_rms_one():
    assert first_step_rms(adamw) == pytest.approx(1, abs=1e-3)
