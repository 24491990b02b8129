"""Lists of covariances in Triton's interpreter: the bits of each item by itself, in launches that do not grow."""

from functools import partial

import pytest
import torch
from triton.runtime.errors import InterpreterError

from kpop_kernels._schema import OPERATORS
from tests.emulation.triton import operators
from tests.emulation.triton.test_symmetric import WIDE
from tests.matrices import covariance, normal
from tests.ops.launch import assert_same_bits

pytestmark = pytest.mark.usefixtures("interpreted")

ITEMS = (
    # batch, m, n, side, dtype of S, whether X is stored by columns
    ((), 32, 48, "left", torch.float32, False),
    ((3,), 16, 32, "left", torch.float32, False),
    ((), 19, 24, "left", torch.float32, False),
    ((2,), 48, 16, "right", torch.float32, True),
    ((), 16, 48, "right", torch.float32, False),
    ((2,), 7, 33, "right", torch.float32, False),
    ((), 0, 5, "left", torch.float32, False),
    ((), 5, 0, "left", torch.float32, False),
    ((), 1, 1, "right", torch.float32, False),
    ((), 32, 16, "left", torch.bfloat16, False),
    ((2,), 17, 16, "right", torch.bfloat16, False),
)


def arguments(batch, m, n, side, dtype, by_columns, seed=0):
    generator = torch.Generator().manual_seed(100 * m + n + seed)
    X = normal(generator, *batch, m, n, dtype=torch.float32)
    X = X.mT.contiguous().mT if by_columns else X
    order = m if side == "left" else n
    S = covariance(generator, *batch, order, order, dtype=torch.float32).to(dtype)
    return S, X


def average(items, tensors, module=None, beta=0.9):
    """Update the covariances of a list, and return them."""
    operator, module = OPERATORS["gram_ema_foreach_"], module or operators.file_of("gram_ema_foreach_")
    S = [s.clone() for s, _ in tensors]
    alpha = [0.1 * (i + 1) for i in range(len(items))]
    sides = [item[3] for item in items]
    function = operator.guarded(partial(module.gram_ema_foreach_, config=WIDE))
    function(S, [x for _, x in tensors], beta=beta, alpha=alpha, side=sides)
    return S


def check(module=None, beta=0.9):
    """Require of a list of all kinds the bits of each of its items by itself."""
    tensors = [arguments(*item) for item in ITEMS]
    many = average(ITEMS, tensors, module, beta)
    for i, (s, x) in enumerate(tensors):
        scalars = {"beta": beta, "alpha": 0.1 * (i + 1), "side": ITEMS[i][3]}
        (one,) = operators.run("gram_ema_", {"S": s, "X": x}, config=WIDE, **scalars)
        assert_same_bits([many[i]], [one])


@pytest.mark.parametrize("beta", [0.9, 0.0])
def test_a_list_is_its_items(beta):
    check(beta=beta)


def test_launches_of_a_list_do_not_grow_with_it(interpreted):
    for copies in 1, 4:
        items = [item for item in ITEMS if item[4] == torch.float32 and item[2]] * copies
        tensors = [arguments(*item, seed=i) for i, item in enumerate(items)]
        interpreted.clear()
        average(items, tensors)
        # One for each stride of X that is 1.
        assert interpreted == ["symmetric_product_kernel"] * 2


BUGS = [
    ("tile -= load_operand(row_ptr).to(tl.int32)", "tile -= 0"),
    ("size_in_table(row_ptr, 2, True)", "size_in_table(row_ptr, 1, True)"),
    ("_batch(row_ptr, 3)", "_batch(row_ptr, 7)"),
    ("size_in_table(row_ptr, 4, True)", "size_in_table(row_ptr, 8, True)"),
    ("alpha = load_operand", "_ = load_operand"),
    ("EVEN=all(", "EVEN=any("),
    ("sum(tiles),)", "max(tiles),)"),
    ("self.A.stride(2) != 1", "False"),
]


@pytest.mark.parametrize(("old", "new"), BUGS, ids=[new for _, new in BUGS])
def test_planted_bug_is_found(tmp_path, old, new):
    broken = operators.mutated("gram_ema_foreach_", "symmetric", tmp_path, old, new)
    with pytest.raises((AssertionError, InterpreterError)):
        check(broken)
