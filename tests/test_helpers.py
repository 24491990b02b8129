"""The tests' own instruments find what they are there to find."""

import pytest
import torch

from tests.errors import assert_accurate, largest_error, relative_error
from tests.guards import BAND, Guarded

LIKE = {
    "contiguous": torch.ones(3, 4),
    "rows apart": torch.ones(3, 6)[:, :4],
    "transposed": torch.ones(4, 3).T,
    "expanded": torch.arange(3.0)[:, None].expand(3, 4),
    "empty": torch.ones(0, 4),
    "integers": torch.arange(12, dtype=torch.uint8).reshape(3, 4),
}


@pytest.mark.parametrize("like", LIKE.values(), ids=LIKE)
def test_guarded_copies_values_and_strides(like):
    guarded = Guarded(like)
    assert guarded.tensor.stride() == like.stride()
    assert torch.equal(guarded.tensor, like)
    guarded.assert_unchanged("it")


@pytest.mark.parametrize("like", LIKE.values(), ids=LIKE)
@pytest.mark.parametrize("place", [0, BAND - 1, -1])
def test_guarded_sees_a_write_outside(like, place):
    guarded = Guarded(like)
    memory = guarded.tensor.as_strided(
        (guarded.tensor.untyped_storage().nbytes() // like.element_size(),), (1,), 0
    )
    memory[place] = 0
    with pytest.raises(AssertionError, match="it: 1 elements outside the tensor were written"):
        guarded.assert_intact("it")


def test_guarded_sees_a_write_between_rows():
    guarded = Guarded(torch.ones(3, 6)[:, :4])
    guarded.tensor.as_strided((1,), (1,), BAND + 5)[0] = 0
    with pytest.raises(AssertionError, match="the first one 5 elements from its start"):
        guarded.assert_intact("it")


def test_guarded_sees_a_written_input():
    guarded = Guarded(torch.ones(3))
    guarded.tensor[1] = -1
    guarded.assert_intact("it")
    with pytest.raises(AssertionError, match="it was written, it is only an input"):
        guarded.assert_unchanged("it")


@pytest.mark.parametrize(
    "allocation",
    ["torch.empty(3)", "torch.empty_like(x)", "torch.empty_strided((3,), (2,))", "x.new_empty(3)"],
)
def test_memory_of_the_package_is_poisoned(allocation):
    names = {"__name__": "kpop_kernels.ops", "torch": torch, "x": torch.zeros(3)}
    assert eval(allocation, names).isnan().all()


def test_integers_are_poisoned():
    names = {"__name__": "kpop_kernels", "torch": torch}
    assert (eval("torch.empty(3, dtype=torch.int16)", names) == 0x5555).all()


def test_errors_are_relative():
    oracle = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert relative_error(oracle + torch.tensor([0.0, 0.5]), oracle) == 0.1
    assert largest_error(oracle + torch.tensor([1.0, 0.0]), oracle) == 0.25
    assert relative_error(torch.ones(1), torch.zeros(1, dtype=torch.float64)) == 1.0
    assert relative_error(torch.ones(0), torch.ones(0, dtype=torch.float64)) == 0.0


@pytest.mark.parametrize(
    ("ours", "composite", "bound"),
    [(1.1, 1.0, 1.0), (1.1, 1.1, 1e-3), (float("nan"), 1.0, 1.0), (float("inf"), float("inf"), 1.0)],
    ids=["worse than composite", "both wrong", "NaN", "both infinite"],
)
def test_inaccurate_results_fail(ours, composite, bound):
    oracle = torch.ones(1, dtype=torch.float64)
    with pytest.raises(AssertionError, match=r"S: error .*, composite has .*: at most .* allowed"):
        assert_accurate(torch.tensor([ours]), torch.tensor([composite]), oracle, bound=bound, name="S")
