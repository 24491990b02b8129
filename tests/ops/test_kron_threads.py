"""Products between factors on the CPU: a list is one call, whose bits are those of its items on any threads."""

import pytest
import torch

from tests.ops import test_gram_ema, test_kl_gram_ema, test_kron_adam, test_kron_adam8, test_whiten
from tests.ops.launch import CPU, Launcher, assert_same_bits

# Batches of fewer and of more matrices than there are threads: these share a product or take one each.
SHAPES = [
    ((), 33, 17, ("shared", "shared")),
    ((2,), 20, 33, ("each", "shared")),
    ((5,), 7, 12, ("shared", "none")),
    ((), 64, 64, ("none", "shared")),
    ((), 40, 1, ("none", "none")),
]
COUNT = range(len(SHAPES))
LR = torch.tensor(0.1, dtype=torch.float64)
ADAM = {"lr": LR, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
ADAM_LISTS = {
    "step": [torch.tensor(i + 1) for i in COUNT],
    "found_inf": [None, torch.tensor(0.0), None, None, None],
}
ADAM8_LISTS = {**ADAM_LISTS, "stream": [3 + i for i in COUNT], "offset": [16 * i for i in COUNT]}
ORIGINAL = {"exp_avg_basis": "original", "maximize": True, "clip": 0.9}

# Operator on one item, its tensors, what it writes, scalars, numbers of each item.
CASES = {
    "kron_adam": ("kron_adam_", test_kron_adam.arguments, test_kron_adam.WRITTEN, ADAM, ADAM_LISTS),
    "kron_adam8": (
        "kron_adam8_",
        test_kron_adam8.arguments,
        test_kron_adam8.WRITTEN,
        ADAM | {"seed": 5},
        ADAM8_LISTS,
    ),
    "kron_adam8 in the original basis": (
        "kron_adam8_",
        test_kron_adam8.arguments,
        test_kron_adam8.WRITTEN,
        ADAM | ORIGINAL | {"seed": 5},
        ADAM8_LISTS,
    ),
    "whiten_update": (
        "whiten_update_",
        lambda generator, *shape: test_whiten.with_param(generator, test_whiten.arguments(generator, *shape)),
        ("param",),
        {"lr": LR, "weight_decay": 0.2, "maximize": True},
        {"scale": [1.5 + i for i in COUNT], "found_inf": [None] * len(COUNT)},
    ),
    "gram_ema": (
        "gram_ema_",
        lambda generator, batch, m, n, _: test_gram_ema.arguments(generator, batch, m, n, "left"),
        test_gram_ema.WRITTEN,
        {"beta": 0.75},
        {"alpha": [0.125 + i for i in COUNT], "side": ["left" for _ in COUNT]},
    ),
    "kl_gram_ema": (
        "kl_gram_ema_",
        test_kl_gram_ema.arguments,
        test_kl_gram_ema.WRITTEN,
        test_kl_gram_ema.SCALARS,
        {},
    ),
}


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def cloned(items):
    return [{name: None if t is None else t.clone() for name, t in item.items()} for item in items]


def run_list(variant, case, items, first=0):
    op, _, written, scalars, lists = CASES[case]
    columns = [[item[name] for item in items] for name in items[0]]
    numbers = {name: column[first : first + len(items)] for name, column in lists.items()}
    Launcher(f"{op[:-1]}_foreach_", variant)(*columns, **scalars, **numbers)
    return [item[name] for item in items for name in written]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("variant", CPU)
def test_bits_are_those_of_the_items_on_any_threads(generator, variant, case, threads):
    op, arguments, written, scalars, lists = CASES[case]
    items = [arguments(generator, *shape) for shape in SHAPES]
    threads(1)
    one = cloned(items)
    for i, item in enumerate(one):
        Launcher(op, variant)(
            *item.values(), **scalars, **{name: column[i] for name, column in lists.items()}
        )
    expected = [item[name] for item in one for name in written]
    for count in (1, 3, 7):
        threads(count)
        assert_same_bits(run_list(variant, case, cloned(items)), expected)
    threads(3)
    for i in COUNT:
        alone = run_list(variant, case, cloned(items[i : i + 1]), first=i)
        assert_same_bits(alone, expected[i * len(written) : (i + 1) * len(written)])


@pytest.mark.parametrize("case", CASES)
def test_a_list_is_one_call(generator, case, monkeypatch):
    from kpop_kernels.backends.cpu import native

    class Counting:
        def __init__(self):
            self.calls = []

        def __getattr__(self, name):
            if name != "isa":
                self.calls.append(name)
            return getattr(chosen, name)

    chosen, counting = native.kernels(), Counting()
    monkeypatch.setattr(native, "_kernels", counting)
    # An item without any factor has no products, and whitening has nothing of its own for it.
    items = [CASES[case][1](generator, *shape) for shape in SHAPES[:4]]
    run_list("cpu", case, items)
    assert len(counting.calls) == 1


@pytest.mark.parametrize("case", [case for case in CASES if "gram_ema" not in case])
@pytest.mark.parametrize("variant", CPU)
def test_each_item_has_its_own_found_inf(generator, variant, case):
    op, arguments, written, scalars, lists = CASES[case]
    items = [arguments(generator, *shape) for shape in SHAPES]
    decided, all_of = cloned(items), cloned(items)
    run_list(variant, case, all_of)
    found = {"found_inf": [torch.tensor(float(i % 2)) for i in COUNT]}
    columns = [[item[name] for item in decided] for name in decided[0]]
    Launcher(f"{op[:-1]}_foreach_", variant)(*columns, **scalars, **(lists | found))
    for i, item in enumerate(decided):
        wanted = items[i] if i % 2 else all_of[i]
        assert_same_bits([item[name] for name in written], [wanted[name] for name in written])
