"""The numbers of an Adam step, computed by one program, are those that the host computes."""

import math

import pytest
import torch

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999, 1 - 1e-7])
@pytest.mark.parametrize("step", [1, 2, 1000, 10**7])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32], ids=str)
def test_matches_the_host(interpreted, beta, step, dtype):
    from kpop_kernels.backends.triton.adam_scalars import adam_scalars

    scalars = {"beta1": beta, "beta2": 0.95, "weight_decay": 0.1}
    t, lr = torch.tensor(step, dtype=dtype), torch.tensor(0.3, dtype=torch.float64)
    on_device = adam_scalars(t, lr, device=torch.device("cpu"), **scalars)
    by_value = adam_scalars(t, lr, device=torch.device("meta"), **scalars)
    assert torch.stack(on_device).tolist() == torch.tensor(by_value, dtype=torch.float32).tolist()
    assert by_value[0] == pytest.approx(1 / (1 - beta**step), rel=1e-8) and by_value[3] == 0.3
    assert math.isclose(by_value[2], 1 - 0.3 * 0.1)
    assert interpreted == ["adam_scalars_kernel"]
