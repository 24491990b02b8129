import kpop_regression


def test_kpop_fits_the_linear_map():
    losses = kpop_regression.fit()
    assert len(losses) == kpop_regression.STEPS + 1
    assert losses[0] > 1
    assert losses[-1] < 1e-4
