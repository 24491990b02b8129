"""Lists of mixed shapes: each item is what the operator on one makes of it, in one call."""

import pytest
import torch

import kpop_kernels
from kpop_kernels import _schema, backends
from tests.matrices import covariance, normal, orthogonal
from tests.ops.launch import Launcher, assert_same_bits
from tests.ops.test_kron_adam import SCALARS, WRITTEN, arguments

VARIANTS = ("composite", "cpu")
SHAPES = [
    ((), 33, 17, ("shared", "shared")),
    ((3,), 5, 7, ("each", "shared")),
    ((), 64, 64, ("none", "shared")),
    ((), 1, 9, ("none", "none")),
    ((), 0, 3, ("shared", "shared")),
]


def lists(items):
    return {name: [item[name] for item in items] for name in items[0]}


def cloned(items):
    return [{name: None if t is None else t.clone() for name, t in item.items()} for item in items]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kron_adam_foreach(generator, variant, dtype):
    items = [arguments(generator, *shape, dtype) for shape in SHAPES]
    steps = [torch.tensor(float(t)) for t in (1, 7, 1000, 2, 3)]
    found = [None, torch.tensor(0.0), torch.tensor(1.0), None, None]
    scalars = {**SCALARS, "lr": torch.tensor(0.1), "clip": 0.9}
    many, one = cloned(items), cloned(items)
    Launcher("kron_adam_foreach_", variant)(
        *lists(many).values(), **(scalars | {"step": steps, "found_inf": found})
    )
    for item, t, inf in zip(one, steps, found, strict=True):
        Launcher("kron_adam_", variant)(*item.values(), **(scalars | {"step": t, "found_inf": inf}))
    for a, b in zip(many, one, strict=True):
        assert_same_bits([a[name] for name in WRITTEN], [b[name] for name in WRITTEN])
    assert_same_bits([many[2][name] for name in WRITTEN], [items[2][name] for name in WRITTEN])


@pytest.mark.parametrize("variant", VARIANTS)
def test_gram_ema_foreach(generator, variant):
    X = [normal(generator, *shape).float() for shape in ((5, 9), (9, 3), (2, 4, 6), (0, 3))]
    X = [x for x in X for _ in range(2)]
    sides = ["left", "right"] * 4
    S = [
        covariance(
            generator, *x.shape[:-2], *[x.shape[-2 if side == "left" else -1]] * 2, dtype=torch.float32
        )
        for x, side in zip(X, sides, strict=True)
    ]
    many = [s.clone() for s in S]
    alphas = [0.1 * i for i in range(8)]
    Launcher("gram_ema_foreach_", variant)(many, X, beta=0.9, alpha=alphas, side=sides)
    for s, x, alpha, side, result in zip(S, X, alphas, sides, many, strict=True):
        Launcher("gram_ema_", variant)(s, x, beta=0.9, alpha=alpha, side=side)
        assert_same_bits([result], [s])


def test_rebase_moments_foreach(generator):
    shapes = [(5, 7), (2, 3, 4), (1, 1)]
    moments = [[normal(generator, *s), normal(generator, *s).square()] for s in shapes]
    P_L = [orthogonal(generator, s[-2], s[-2]) for s in shapes]
    P_R = [orthogonal(generator, 7, 7), None, None]
    many = [[t.clone() for t in pair] for pair in moments]
    kpop_kernels.rebase_moments_foreach_(*map(list, zip(*many, strict=True)), P_L, P_R)
    for pair, left, right, result in zip(moments, P_L, P_R, many, strict=True):
        kpop_kernels.rebase_moments_(*pair, left, right)
        assert_same_bits(result, pair)


def test_public_functions_spread_what_is_given_once(generator):
    items = [arguments(generator, *shape) for shape in SHAPES]
    one, many = cloned(items), cloned(items)
    with backends.trace() as counter:
        kpop_kernels.kron_adam_foreach_(*lists(many).values(), **SCALARS)
        S = [torch.zeros(m, m) for _, m, _, _ in SHAPES[2:]]
        kpop_kernels.gram_ema_foreach_(S, [i["grad"] for i in items[2:]], beta=0.9, alpha=0.1, side="left")
    assert counter == {
        ("kron_adam_foreach_", backends.serving("kron_adam_foreach_", items[0]["param"]).name): 1,
        ("gram_ema_foreach_", backends.serving("gram_ema_foreach_", *S).name): 1,
    }
    for a, b in zip(one, many, strict=True):
        assert kpop_kernels.kron_adam_(*a.values(), **SCALARS) is a["param"]
        assert_same_bits([a[name] for name in WRITTEN], [b[name] for name in WRITTEN])


def test_empty_lists_do_nothing():
    kpop_kernels.kron_adam_foreach_([], [], [], [], [], [], lr=0.1, step=1)
    kpop_kernels.gram_ema_foreach_([], [], beta=0.9, alpha=0.1, side="left")
    kpop_kernels.rebase_moments_foreach_([], [], [], [])


def test_rejects_name_the_item(generator):
    items = lists([arguments(generator, *shape) for shape in SHAPES])
    items["Q_R"][1] = torch.eye(3)
    with pytest.raises(ValueError, match=r"kron_adam_foreach_: item 1: kron_adam_: Q_R has shape \(3, 3\)"):
        kpop_kernels.kron_adam_foreach_(*items.values(), **SCALARS)
    with pytest.raises(ValueError, match="kron_adam_foreach_: the lists differ in length"):
        kpop_kernels.kron_adam_foreach_(
            *(column[:2] for column in items.values()), **(SCALARS | {"step": [1]})
        )
    blocks = kpop_kernels.quantize_int8(torch.ones(2, 3)), kpop_kernels.quantize_dynamic8(torch.ones(2, 3))
    ones, none = [torch.ones(2, 3)] * 2, [None] * 2
    with pytest.raises(TypeError, match="some moments are in 8-bit blocks, either all or none must be"):
        moments = [blocks[0], ones[0]], [blocks[1], ones[0]]
        kpop_kernels.kron_adam_foreach_(ones, ones, *moments, none, none, **SCALARS)


def test_a_number_in_the_place_of_a_list_is_named():
    S, X = [torch.eye(2)] * 2, [torch.ones(2, 2)] * 2
    with pytest.raises(TypeError, match="alpha is of type float, it must be a list with one entry an item"):
        backends.get("composite").gram_ema_foreach_(S, X, beta=0.9, alpha=0.1, side=["left"] * 2)


@pytest.mark.parametrize("op", [name for name in _schema.OPERATORS if "_foreach" in name])
def test_lists_keep_the_arguments_of_one(op):
    operator = _schema.OPERATORS[op]
    if operator.single is not None:
        assert operator.parameters == operator.single.parameters


def test_compiles(generator):
    items = [arguments(generator, *shape) for shape in SHAPES[:2]]
    one, many = cloned(items), cloned(items)
    compiled = torch.compile(kpop_kernels.kron_adam_foreach_, fullgraph=True, backend="aot_eager")
    compiled(*lists(one).values(), **SCALARS)
    kpop_kernels.kron_adam_foreach_(*lists(many).values(), **SCALARS)
    for a, b in zip(one, many, strict=True):
        assert_same_bits([a[name] for name in WRITTEN], [b[name] for name in WRITTEN])
