"""Who owns what: a function of the tasks alone, even in work and in memory."""

import itertools
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
    assert assign([Task(w, w) for w in (1, 2, 3, 4)], loads) == [0, 1, 1, 0]
    assert loads.work == [5.0, 5.0]


def test_exchanges_mend_what_the_longest_first_spoil():
    loads = Loads.none(2)  # the longest first: 4 + 3 + 2 and 4 + 3
    owners = assign([Task(w, w) for w in (2, 3, 3, 4, 4)], loads)
    assert loads.work == loads.memory == [8.0, 8.0]
    assert owners[3] == owners[4] and owners[0] == owners[1] == owners[2] != owners[3]


def test_a_task_that_no_other_rank_can_take_stays():
    loads = Loads.none(3)
    owners = assign([Task(100, 1), *[Task(1, 1)] * 4], loads)
    assert loads.work == [100.0, 2.0, 2.0] and owners == [0, 1, 2, 1, 2]


@pytest.mark.parametrize("seed", range(10))
def test_the_largest_load_is_near_the_least_possible(seed):
    rng = random.Random(seed)
    tasks = [Task(rng.choice((1, 2, 5, 9)), rng.choice((1, 3, 4))) for _ in range(7)]
    loads = Loads.none(3)
    assign(tasks, loads)

    def largest(owners: tuple[int, ...]) -> float:
        other = Loads.none(3)
        for owner, task in zip(owners, tasks, strict=True):
            other.add(owner, task)
        return max(imbalance(other.work), imbalance(other.memory))

    least = min(map(largest, itertools.product(range(3), repeat=7)))
    assert least <= max(imbalance(loads.work), imbalance(loads.memory)) <= 1.2 * least


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
