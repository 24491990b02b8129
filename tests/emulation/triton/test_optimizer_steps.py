"""Steps of optimizers in Triton's interpreter: kernels are launched for all parameters, not for each."""

from collections import Counter
from copy import deepcopy
from functools import partial

import pytest
import torch

from kpop_kernels.optim import QClean, _nonfinite, _updates
from tests.emulation.triton import operators
from tests.emulation.triton.dispatch import served_by_triton
from tests.errors import relative_error
from tests.optim.registry import CASES

OURS = [case for case in CASES if case.ours]
SHAPES = ((16, 32), (33, 17), (48, 48), (5,))


@pytest.fixture(autouse=True)
def _as_on_a_device(monkeypatch):
    """Let optimizers read nothing of a tensor, as where that would wait for a device."""
    for module in (_nonfinite, _updates):
        monkeypatch.setattr(module, "on_host", lambda device: False)


def trained(make, copies, shapes=SHAPES):
    """Return an optimizer after its first step, with gradients for the second."""
    generator = torch.Generator().manual_seed(1)
    parameters = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes * copies]
    optimizer = make(parameters)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return optimizer


def launches_of_a_step(optimizer, interpreted):
    """Return how often each kernel is launched in a step that renews nothing; it ends where the CPU's does."""
    expected = deepcopy(optimizer)
    pairs = list(zip(*(o.param_groups[0]["params"] for o in (optimizer, expected)), strict=True))
    for ours, theirs in pairs:
        theirs.grad = ours.grad.clone()
    expected.step()
    interpreted.clear()
    with served_by_triton():
        optimizer.step()
    for ours, theirs in pairs:
        assert relative_error(ours.detach(), theirs.detach().double()) < 1e-5
    return Counter(interpreted)


@pytest.mark.parametrize("case", OURS, ids=[case.name for case in OURS])
def test_launches_do_not_grow_with_the_number_of_parameters(interpreted, case):
    few, many = (launches_of_a_step(trained(case.make, copies), interpreted) for copies in (1, 4))
    assert few and few == many
    assert ("block_lift_kernel" in few) == (case.name in ("Clean", "QClean"))


def test_adam_in_blocks_is_one_launch(interpreted):
    """One of the items stops, so that it is at another step than the others."""
    make = partial(QClean, max_precond_dim=64)
    for copies in (1, 4):
        optimizer = trained(make, copies, ((130, 32), (70, 64)))
        optimizer.param_groups[0]["params"][1].grad = None
        optimizer.step()
        optimizer.param_groups[0]["params"][1].grad = torch.ones(70, 64)
        steps = {state["step"].item() for state in optimizer.state.values()}
        assert steps == {1.0, 2.0}
        assert launches_of_a_step(optimizer, interpreted)["adam8_list_kernel"] == 1


def test_launches_for_each_parameter_are_seen(interpreted, monkeypatch):
    gram = operators.file_of("gram_ema_foreach_")
    together = gram.gram_ema_foreach_

    def one_by_one(S, X, *, beta, alpha, side):
        for item, x, factor, which in zip(S, X, alpha, side, strict=True):
            together([item], [x], beta=beta, alpha=[factor], side=[which])

    monkeypatch.setattr(gram, "gram_ema_foreach_", one_by_one)
    (case,) = (case for case in OURS if case.name == "SOAP")
    few, many = (launches_of_a_step(trained(case.make, copies), interpreted) for copies in (1, 4))
    assert many["symmetric_product_kernel"] == 4 * few["symmetric_product_kernel"] == 24
