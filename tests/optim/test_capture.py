"""The sums that KPOP gathers: exactly those of the passes that the gradient sees."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kpop_kernels.optim import KPOP


def attached(model, **options):
    """Return an optimizer watching a model in float64."""
    model.double()
    optimizer = KPOP(model.named_parameters())
    optimizer.attach(model, **options)
    return optimizer


def sums_of(optimizer, weight):
    """Return the gathered (left, right) second-moment sums of a weight; None for a side that has none."""
    sums = optimizer._capture.take(weight)
    if sums is None:
        return None
    return tuple(next((side.gram for side in sides.values()), None) for sides in (sums.left, sums.right))


def backward(y, factor=1.0):
    """Run a backward pass with a fixed random output gradient, and return it."""
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(7), dtype=y.dtype) * factor
    y.backward(grad)
    return grad


def assert_sums(actual, left, right):
    for got, rows in zip(actual, (left, right), strict=True):
        torch.testing.assert_close(got, rows.mT @ rows, rtol=1e-12, atol=1e-12)


def test_linear_rows():
    layer = nn.Linear(5, 3)
    optimizer = attached(layer)
    x = torch.randn(11, 5, dtype=torch.float64)
    dy = backward(layer(x))
    assert_sums(sums_of(optimizer, layer.weight), dy, x)


def test_sequences_expand_to_rows_or_reduce_to_samples():
    x = torch.randn(4, 6, 5, dtype=torch.float64)
    for approximation in ("expand", "reduce"):
        layer = nn.Linear(5, 3)
        optimizer = attached(layer, approximation=approximation)
        dy = backward(layer(x))
        if approximation == "expand":
            assert_sums(sums_of(optimizer, layer.weight), dy.reshape(-1, 3), x.reshape(-1, 5))
        else:
            assert_sums(sums_of(optimizer, layer.weight), dy.sum(1), x.mean(1))


@pytest.mark.parametrize(
    "options",
    [
        {"padding": 1},
        {"stride": 2},
        {"dilation": 2, "padding": (2, 1)},
        {"padding": "same"},
        {"padding": 1, "padding_mode": "circular"},
    ],
    ids=str,
)
def test_convolution_patches_reproduce_the_gradient(options):
    """dYᵀX of the captured rows is the weight's gradient, so they are the right rows."""
    layer = nn.Conv2d(2, 3, 3, bias=False, **options)
    optimizer = attached(layer)
    seen = []
    optimizer._capture.add = lambda weight, kind, left, right: seen.append((left, right))
    backward(layer(torch.randn(4, 2, 9, 8, dtype=torch.float64)))
    left, right = seen[0]
    torch.testing.assert_close((left.mT @ right).view_as(layer.weight), layer.weight.grad)


def test_embedding_has_only_the_output_side():
    layer = nn.Embedding(20, 4)
    optimizer = attached(layer)
    dy = backward(layer(torch.randint(0, 20, (3, 5))))
    left, right = sums_of(optimizer, layer.weight)
    assert left is None
    torch.testing.assert_close(right, dy.reshape(-1, 4).mT @ dy.reshape(-1, 4))


def test_micro_batches_add_up_to_the_whole_batch():
    layer = nn.Linear(5, 3)
    optimizer = attached(layer)
    x = torch.randn(12, 5, dtype=torch.float64)
    target = torch.randn(12, 3, dtype=torch.float64)
    (layer(x) - target).square().sum().backward()
    whole = sums_of(optimizer, layer.weight)
    for part in range(3):
        rows = slice(4 * part, 4 * part + 4)
        (layer(x[rows]) - target[rows]).square().sum().backward()
    for got, expected in zip(sums_of(optimizer, layer.weight), whole, strict=True):
        torch.testing.assert_close(got, expected)


def test_the_scale_of_the_loss_changes_nothing():
    """A gradient scaler multiplies the loss and divides the gradients before the step."""
    weights = []
    for scale in (1.0, 65536.0):
        torch.manual_seed(0)
        layer = nn.Linear(6, 4)
        optimizer = attached(layer)
        for _ in range(12):
            optimizer.zero_grad()
            x = torch.randn(16, 6, dtype=torch.float64)
            (layer(x).square().mean() * scale).backward()
            for parameter in layer.parameters():
                parameter.grad /= scale
            optimizer.step()
        weights.append(layer.weight.detach())
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_counts_once(reentrant):
    layer = nn.Linear(5, 3)
    optimizer = attached(layer)
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    dy = backward(checkpoint(layer, x, use_reentrant=reentrant))
    assert_sums(sums_of(optimizer, layer.weight), dy, x.detach())


def test_an_in_place_activation_does_no_harm():
    layer = nn.Linear(5, 3)
    optimizer = attached(layer)
    x = torch.randn(7, 5, dtype=torch.float64)
    y = F.relu_(layer(x))
    active = (y > 0).double()
    dy = backward(y)
    assert_sums(sums_of(optimizer, layer.weight), dy * active, x)


def test_a_shared_module_sums_its_calls():
    layer = nn.Linear(4, 4)
    optimizer = attached(layer)
    x = torch.randn(7, 4, dtype=torch.float64)
    hidden = layer(x)
    hidden.retain_grad()
    dy = backward(layer(hidden))
    assert_sums(
        sums_of(optimizer, layer.weight), torch.cat([dy, hidden.grad]), torch.cat([hidden.detach(), x])
    )


def test_an_embedding_tied_to_a_head_keeps_its_vocabulary_side_diagonal():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(self.embedding(tokens))

    model = Tied()
    optimizer = attached(model)
    before = model.head.weight.detach().clone()
    F.cross_entropy(model(torch.randint(0, 10, (8,))), torch.randint(0, 10, (8,))).backward()
    optimizer.step()
    state = optimizer.state[model.head.weight]
    assert "Q_L" not in state
    assert state["R"].trace() > 0
    assert not torch.equal(before, model.head.weight)
    assert "Embedding + Linear" in optimizer.explain()


def test_nothing_is_gathered_in_evaluation_without_gradients_or_when_switched_off():
    layer = nn.Linear(5, 3)
    optimizer = attached(layer)
    x = torch.randn(7, 5, dtype=torch.float64)
    with torch.no_grad():
        layer(x)
    layer.eval()
    backward(layer(x))
    layer.train()
    with optimizer.capture(False):
        backward(layer(x))
    layer.weight.requires_grad_(False)
    backward(layer(x))
    assert sums_of(optimizer, layer.weight) is None
    layer.weight.requires_grad_(True)
    backward(layer(x))
    assert sums_of(optimizer, layer.weight) is not None


def test_capture_only_inside_a_block():
    layer = nn.Linear(5, 3)
    optimizer = attached(layer, enabled=False)
    x = torch.randn(7, 5, dtype=torch.float64)
    backward(layer(x))
    assert sums_of(optimizer, layer.weight) is None
    with optimizer.capture():
        backward(layer(x))
    assert sums_of(optimizer, layer.weight) is not None


def test_capture_without_a_model_says_so():
    optimizer = KPOP([nn.Parameter(torch.ones(2, 2))])
    with pytest.raises(RuntimeError, match="call attach"), optimizer.capture():
        pass


def test_zero_grad_between_forward_and_backward_keeps_the_pass():
    layer = nn.Linear(5, 3)
    optimizer = attached(layer)
    x = torch.randn(7, 5, dtype=torch.float64)
    backward(layer(x), factor=3.0)
    y = layer(x)
    optimizer.zero_grad()
    dy = backward(y)
    assert_sums(sums_of(optimizer, layer.weight), dy, x)


def test_centred_factors_are_covariances():
    layer = nn.Linear(5, 3, bias=False)
    optimizer = attached(layer, center=True)
    x = torch.randn(50, 5, dtype=torch.float64) + 3
    backward(layer(x))
    optimizer.step()
    covariance = torch.cov(x.mT, correction=0)
    expected = 0.05 * covariance / covariance.trace()
    torch.testing.assert_close(optimizer.state[layer.weight]["R"], expected, rtol=1e-9, atol=1e-12)


def test_detached_models_are_left_alone():
    layer = nn.Linear(5, 3)
    optimizer = attached(layer)
    optimizer.detach()
    assert not layer._forward_hooks
    backward(layer(torch.randn(7, 5, dtype=torch.float64)))
    optimizer.step()
    assert "no model is attached" in optimizer.explain()


def test_attention_output_projections_fall_back_to_their_gradient():
    """nn.MultiheadAttention never calls its output projection, so its hook never fires."""
    model = nn.MultiheadAttention(8, 2)
    optimizer = attached(model)
    x = torch.randn(5, 2, 8, dtype=torch.float64)
    for _ in range(3):
        optimizer.zero_grad()
        model(x, x, x)[0].square().sum().backward()
        optimizer.step()
    state = optimizer.state[model.out_proj.weight]
    assert state["L"].trace() > 0
    assert torch.isfinite(model.out_proj.weight).all()


def test_grouped_convolutions_fall_back_and_say_why():
    layer = nn.Conv2d(4, 4, 3, groups=2)
    optimizer = attached(layer)
    assert "a convolution with groups" in optimizer.explain()
    backward(layer(torch.randn(2, 4, 6, 6, dtype=torch.float64)))
    optimizer.step()
    assert optimizer.state[layer.weight]["L"].trace() > 0


def test_a_layer_that_sees_no_rows_keeps_its_factors():
    layer = nn.Linear(5, 3, bias=False)
    optimizer = attached(layer)
    backward(layer(torch.randn(7, 5, dtype=torch.float64)))
    optimizer.step()
    before = optimizer.state[layer.weight]["R"].clone()
    optimizer.zero_grad()
    backward(layer(torch.randn(0, 5, dtype=torch.float64)))
    optimizer.step()
    assert torch.equal(before, optimizer.state[layer.weight]["R"])


def test_sums_of_a_skipped_step_are_dropped():
    layer = nn.Linear(5, 3, bias=False)
    optimizer = attached(layer)
    x = torch.randn(7, 5, dtype=torch.float64)
    layer(x * float("inf")).sum().backward()
    optimizer.step()
    assert optimizer.skipped == 1
    assert layer.weight not in optimizer.state
    assert sums_of(optimizer, layer.weight) is None


def test_copies_of_an_attached_model_carry_inert_hooks():
    layer = nn.Linear(5, 3)
    optimizer = attached(layer)
    for clone in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        backward(clone(torch.randn(7, 5, dtype=torch.float64)))
        assert sums_of(optimizer, layer.weight) is None
    clone, twin = copy.deepcopy((layer, optimizer))
    assert twin.param_groups[0]["params"][0] is clone.weight
    twin.attach(clone)
    backward(clone(torch.randn(7, 5, dtype=torch.float64)))
    twin.step()
    assert twin.state[clone.weight]["step"] == 1


def test_no_reference_cycle_keeps_the_optimizer_alive():
    layer = nn.Linear(5, 3)
    optimizer = attached(layer)
    backward(layer(torch.randn(7, 5, dtype=torch.float64)))
    optimizer.step()
    alive = weakref.ref(optimizer._capture), weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert alive[0]() is None
        assert alive[1]() is None
    finally:
        gc.enable()
