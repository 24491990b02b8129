"""Who owns what: a function of the tasks alone, even in work and in memory."""

import random

import pytest

from kpop_kernels.distributed._layout import Layout, rows, rows_in_steps
from kpop_kernels.distributed._ownership import Loads, Task, assign, imbalance


def test_equal_tasks_are_dealt_out_in_order():
    loads = Loads.none(3)
    assert assign([Task(1, 1)] * 6, loads) == [0, 1, 2, 0, 1, 2]
    assert loads == Loads([2.0] * 3, [2.0] * 3)


def test_the_longest_goes_first():
    loads = Loads.none(2)
    assert assign([Task(w, w) for w in (2, 3, 3, 4, 4)], loads) == [0, 0, 1, 0, 1]
    assert loads.work == [9.0, 7.0]


def test_memory_counts_as_much_as_work():
    work_heavy, memory_heavy = Task(10, 1), Task(1, 10)
    loads = Loads.none(2)
    owners = assign([work_heavy, work_heavy, memory_heavy, memory_heavy], loads)
    assert sorted(owners[:2]) == sorted(owners[2:]) == [0, 1]


def test_later_tasks_go_where_less_is_done():
    loads = Loads([5.0, 0.0], [5.0, 0.0])
    assert assign([Task(1, 1)] * 3, loads) == [1, 1, 1]


@pytest.mark.parametrize("ranks", (1, 2, 7, 64))
def test_many_tasks_are_even(ranks):
    rng = random.Random(0)
    tasks = [Task(rng.uniform(1, 30), rng.uniform(1, 30)) for _ in range(20 * ranks)]
    loads = Loads.none(ranks)
    owners = assign(tasks, loads)
    for amounts, given in ((loads.work, [t.work for t in tasks]), (loads.memory, [t.memory for t in tasks])):
        expected = [0.0] * ranks
        for owner, amount in zip(owners, given, strict=True):
            expected[owner] += amount
        assert amounts == pytest.approx(expected)
        assert 1 <= imbalance(amounts) < 1.1


def test_no_tasks_and_tasks_of_nothing():
    assert assign([], Loads.none(4)) == []
    assert len(assign([Task(0, 0)] * 3, Loads.none(2))) == 3
    assert imbalance([0.0, 0.0]) == 1.0


@pytest.mark.parametrize("length", (0, 1, 3, 4, 5, 8, 9))
@pytest.mark.parametrize("ranks", (1, 2, 4))
def test_rows_are_cut_as_torch_cuts_them(length, ranks):
    import torch

    chunks = [chunk.tolist() for chunk in torch.arange(length).chunk(ranks)] if length else []
    expected = chunks + [[]] * (ranks - len(chunks))
    assert [list(range(*block[0])) for block in rows((length, 3), ranks)] == expected


def test_rows_in_steps_begin_at_multiples():
    blocks = rows_in_steps((10, 7), 4, 3)
    assert [block[0] for block in blocks] == [(0, 3), (3, 6), (6, 9), (9, 10)]


def test_senders_send_each_block_once_and_the_owner_its_own():
    whole, half, rest = ((0, 4),), ((0, 2),), ((2, 4),)
    layout = Layout((4,), (half, rest, half, rest))
    assert layout.senders(owner=2) == [1, 2]
    assert layout.senders(owner=1) == [0, 1]
    assert layout.holders() == [0, 1, 2, 3]
    assert not layout.replicated and Layout((4,), (whole, whole)).replicated


def test_flat_ranges_are_those_of_whole_rows():
    layout = Layout((4, 3), (((0, 2), (0, 3)), ((2, 2), (0, 3)), ((2, 4), (0, 2))))
    assert [layout.flat_range(rank) for rank in range(3)] == [(0, 6), (0, 0), None]
