import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.optim.conventions.workload import (
    assert_identical,
    gradient,
    identical,
    parameters,
    set_gradients,
    snapshot,
    tensors_in,
    train,
    values,
)

SMALL = [(), (0,), (0, 3), (3, 0), (1,), (1, 1), (1, 7), (7, 1), (9,), (5, 3), (3, 5)]
HIGHER_ORDER = [(2, 3, 4), (2, 0, 4), (1, 3, 4), (4, 3, 2, 2), (4, 1, 1, 1), (2, 2, 2, 2, 2)]


@pytest.mark.parametrize("shape", SMALL + HIGHER_ORDER, ids=str)
def test_every_shape_trains(case, shape):
    (param,) = parameters([shape])
    optimizer = case.make([param])
    for step in range(12):
        before = values([param])
        train(optimizer, [param], [step])
        assert param.shape == shape
        assert param.isfinite().all()
        assert not param.numel() or not identical(values([param]), before)


def test_empty_parameters_do_not_disturb_their_neighbours(case):
    params, mixed = parameters(), parameters()
    expected = case.make(params)
    optimizer = case.make([*mixed, *parameters([(0, 3), (3, 0), (0,)])])
    train(expected, params, range(12))
    for step in range(12):
        set_gradients(mixed, step)
        for param in optimizer.param_groups[0]["params"][len(mixed) :]:
            param.grad = torch.zeros_like(param)
        optimizer.step()
    assert_identical(values(mixed), values(params))


def test_a_channels_last_parameter_trains_like_a_contiguous_one_and_stays_channels_last(case):
    (plain,) = parameters([(3, 4, 2, 2)])
    param = nn.Parameter(plain.detach().clone(memory_format=torch.channels_last))
    assert param.stride() != plain.stride()
    expected, optimizer = case.make([plain]), case.make([param])
    train(expected, [plain], range(12))
    train(optimizer, [param], range(12))
    assert param.is_contiguous(memory_format=torch.channels_last)
    assert_identical(snapshot(optimizer), snapshot(expected))


def test_a_parameter_that_is_a_strided_view_trains_in_place_like_a_contiguous_one(case):
    (plain,) = parameters([(6, 4)])
    storage = torch.full((6, 4, 2), torch.nan)
    storage[..., 0] = plain.detach()
    param = nn.Parameter(storage[..., 0])
    expected, optimizer = case.make([plain]), case.make([param])
    train(expected, [plain], range(12))
    train(optimizer, [param], range(12))
    assert_identical(snapshot(optimizer), snapshot(expected))
    assert_identical(storage[..., 0], plain.detach())
    assert storage[..., 1].isnan().all()


def test_a_tied_parameter_is_one_parameter(case):
    embedding, decoder = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
    (embedding.weight,) = parameters([(6, 4)])
    decoder.weight = embedding.weight
    model = nn.Sequential(embedding, decoder)
    optimizer = case.make(model.parameters())
    before = values([embedding.weight])
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.arange(6)).square().mean().backward()
        optimizer.step()
    assert decoder.weight is embedding.weight
    assert len(optimizer.state) == 1
    assert optimizer.state[embedding.weight]["step"] == 3
    assert not identical(values([embedding.weight]), before)


def test_a_parameter_frozen_in_mid_training_rests_and_then_goes_on(case):
    frozen, other = parameters()[0], parameters()[2]
    optimizer = case.make([frozen, other])
    for step in range(8):
        rests = 3 <= step < 5
        if step == 3:
            frozen.requires_grad_(False)
            frozen.grad = None
            before = snapshot(optimizer)
        if step == 5:
            after = snapshot(optimizer)
            assert_identical((after[0][0], after[1][0]), (before[0][0], before[1][0]))
            frozen.requires_grad_(True)
        if not rests:
            frozen.grad = gradient(frozen, step)
        other.grad = gradient(other, step)
        optimizer.step()
    assert optimizer.state[frozen]["step"] == 6
    assert optimizer.state[other]["step"] == 8
    assert not identical(values([frozen]), before[0][:1])


class LargestOutput(TorchDispatchMode):
    """Records the most elements that any operator's output had."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.numel = max(self.numel, *sizes, 0)
        return out


def test_a_vocabulary_of_60000_rows_allocates_nothing_of_its_square(case):
    param = nn.Parameter(torch.zeros(60_000, 8))
    param.grad = torch.ones_like(param)
    optimizer = case.make([param])
    with LargestOutput() as largest:
        optimizer.step()
    assert param.numel() <= largest.numel <= 2 * param.numel()
    assert sum(t.numel() for t in tensors_in(optimizer.state[param])) <= 4 * param.numel()
    assert param.count_nonzero() == param.numel()
