"""Products of matrices of mixed sizes in one launch, in Triton's interpreter; planted bugs are found."""

import pytest
import torch

from kpop_kernels.tuning import ProductConfig
from tests.emulation.triton.guarded import mutant
from tests.errors import relative_error

pytestmark = pytest.mark.usefixtures("interpreted")

TILES = ProductConfig(block=16, block_k=16, num_warps=4, num_stages=3)
WIDE_TILES = ProductConfig(block=32, block_k=32, num_warps=4, num_stages=3)
SIZES = ((2, 5, 40), (1, 33, 33), (3, 1, 1), (1, 48, 70))
"""Count, rows and columns of each group; no order but the first is a multiple of a tile, three fill up."""


class Matrices:
    """Random matrices of each group, and their workspace."""

    def __init__(self, config=TILES, sizes=SIZES, dtype=torch.float32):
        from kpop_kernels.backends.triton.workspace import Group, Workspace

        self.workspace = Workspace([Group(*size) for size in sizes], config, torch.device("cpu"))
        generator = torch.Generator().manual_seed(0)
        normal = lambda *shape: torch.randn(*shape, generator=generator).to(dtype)
        self.wide = [normal(*size) for size in sizes]
        self.squares = [normal(count, m, m) for count, m, _ in sizes]
        self.dtype = dtype

    def buffer(self, matrices, *, wide):
        return self.workspace.filled(matrices, wide=wide).to(self.dtype)

    def poison(self, *, wide):
        end = self.workspace.end
        elements = end.wide_offset if wide else end.square_offset
        return torch.full((elements,), torch.nan, dtype=self.dtype)


def assert_matrices(found, expected, tolerance=1e-6):
    for result, oracle in zip(found, expected, strict=True):
        assert relative_error(result, oracle.to(torch.float64)) <= tolerance


def check_product(grouped, matrices, *, wide):
    workspace = matrices.workspace
    B = matrices.wide if wide else matrices.squares
    views = workspace.wides if wide else workspace.squares
    A, b = matrices.buffer(matrices.squares, wide=False), matrices.buffer(B, wide=wide)
    out = grouped.product(workspace, A, b, out=matrices.poison(wide=wide), alpha=0.5, wide=wide)
    oracle = [0.5 * a.double() @ b.double() for a, b in zip(matrices.squares, B, strict=True)]
    assert_matrices(views(out), oracle)
    assert not out.isnan().any(), "the filling was not written"
    out = grouped.product(workspace, A, b, b, out=out, alpha=0.5, beta=-3.0, wide=wide)
    assert_matrices(views(out), [o - 3 * b.double() for o, b in zip(oracle, B, strict=True)])


def check_symmetric(grouped, matrices):
    workspace = matrices.workspace
    X = matrices.buffer(matrices.wide, wide=True)
    R = grouped.symmetric_product(workspace, X, out=matrices.poison(wide=False), alpha=0.5)
    grams = [0.5 * x.double() @ x.double().mT for x in matrices.wide]
    assert_matrices(workspace.squares(R), grams)
    assert not R.isnan().any(), "the filling was not written"
    T = grouped.symmetric_product(
        workspace, R, R, R, out=torch.empty_like(R), alpha=2.0, beta=-1.0, diagonal=3.0
    )
    oracle = [2 * r @ r - r + 3 * torch.eye(r.shape[-1], dtype=torch.float64) for r in grams]
    assert_matrices(workspace.squares(T), oracle)
    for square in workspace.squares(T):
        assert torch.equal(square, square.mT), "a matrix is not symmetric"
    for square in workspace.squares(T):
        square.zero_()
    assert not T.any(), "the filling is not zero"


@pytest.fixture
def grouped():
    from kpop_kernels.backends.triton import grouped

    return grouped


@pytest.mark.parametrize("config", [TILES, WIDE_TILES], ids=["16", "32"])
def test_products(grouped, interpreted, config):
    for wide in (False, True):
        check_product(grouped, Matrices(config), wide=wide)
    check_symmetric(grouped, Matrices(config))
    assert interpreted == ["grouped_product_kernel"] * 4 + ["grouped_symmetric_kernel"] * 2


def test_one_group_of_whole_tiles(grouped):
    matrices = Matrices(sizes=((2, 32, 48),))
    assert matrices.workspace.even and len(matrices.workspace.table) == 1
    check_product(grouped, matrices, wide=True)
    check_symmetric(grouped, matrices)


def test_narrow_operands(grouped):
    matrices = Matrices(dtype=torch.float16)
    X = matrices.buffer(matrices.wide, wide=True)
    R = grouped.symmetric_product(matrices.workspace, X, out=matrices.poison(wide=False))
    exact = [x.double() @ x.double().mT for x in matrices.wide]
    assert_matrices(matrices.workspace.squares(R), exact, tolerance=4e-4)


def test_a_table_is_written_once(grouped):
    assert Matrices().workspace.table is Matrices().workspace.table
    assert Matrices().workspace.table is not Matrices(WIDE_TILES).workspace.table


BUGS = [
    ("a_ptr += place(row_ptr, SQUARE_OFFSET, matrix, m, m)", "a_ptr += 0"),
    ("WIDE_OFFSET if IS_WIDE else SQUARE_OFFSET", "WIDE_OFFSET"),
    ("(r[:, None] == r[None, :]) & counts[:, None]", "r[:, None] == r[None, :]"),
    ("add_product(acc, a_ptr, n, 1, a_ptr, 1, n,", "add_product(acc, a_ptr, n, 1, a_ptr, n, 1,"),
    ("size(row_ptr, COLUMNS if IS_WIDE else ROWS)", "size(row_ptr, ROWS)"),
]


@pytest.mark.parametrize(("old", "new"), BUGS, ids=[bug[1] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, grouped, old, new):
    broken = mutant(grouped, tmp_path, {old: new})
    with pytest.raises((AssertionError, broken.triton.runtime.errors.InterpreterError)):
        check_product(broken, Matrices(), wide=False)
        check_product(broken, Matrices(), wide=True)
        check_symmetric(broken, Matrices())
