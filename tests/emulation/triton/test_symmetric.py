"""Symmetric products in Triton's interpreter against the oracle; planted bugs are found."""

import pytest
import torch

from kpop_kernels.backends import composite
from kpop_kernels.tuning import LARGE, LARGE_IN_REGISTERS, SMALL, ProductConfig, product_config
from python_ref import gram as gram_oracle
from python_ref import symmetric as oracle
from tests.emulation.triton import interpreter, operators
from tests.errors import assert_accurate
from tests.ops.launch import LAYOUTS, strided

pytestmark = pytest.mark.usefixtures("interpreted")

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TILES = ProductConfig(block=16, block_k=16, num_warps=4, num_stages=3)
WIDE = ProductConfig(block=32, block_k=32, num_warps=4, num_stages=3)
SHAPES = [(1, 1), (3, 2), (7, 40), (16, 16), (31, 33), (48, 5), (65, 20)]
SCALARS = {"alpha": -0.5, "beta": 2.0}
BOUND = {torch.float32: 4e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


FOUND = "error|not symmetric|elements outside|outside of every tensor"


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def symmetric(*shape, dtype=torch.float32):
    C = normal(*shape, seed=1)
    return (C + C.mT).to(dtype)


def check(op, tensors, *, module=None, config=TILES, **scalars):
    """Require symmetry bit for bit, and errors like those of plain PyTorch."""
    scalars = SCALARS | scalars
    (result,) = operators.run(op, tensors, module=module, config=config, **scalars)
    C = scalars.pop("C")
    addend = C if scalars["beta"] else torch.zeros_like(result)
    expected = getattr(oracle, op)(*tensors.values(), addend, **scalars)
    composite_result = torch.empty_like(result)
    getattr(composite.symmetric, op)(*tensors.values(), C=C, **scalars, out=composite_result)
    assert torch.equal(result, result.mT), "the result is not symmetric"
    assert_accurate(result, composite_result, expected, bound=BOUND[result.dtype])
    return result


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_matches_the_oracle(interpreted, n, k, dtype):
    A = normal(2, n, k, dtype=dtype)
    C = symmetric(2, n, n, dtype=dtype)
    check("symm_mm", {"A": A, "B": A.mT.contiguous()}, C=C)
    check("symm_mm", {"A": A, "B": A.mT}, C=None, beta=0.0, config=WIDE)
    check("syrk", {"X": A}, C=C, side="left", config=WIDE)
    check("syrk", {"X": A}, C=None, beta=0.0, side="right")
    assert interpreted == ["symmetric_product_kernel"] * 4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_takes_any_strides(layout):
    X = normal(2, 32, 48)
    B = X.mT.contiguous()
    for C in (symmetric(2, 32, 32), strided(symmetric(2, 32, 32), layout)):
        check("syrk", {"X": strided(X, layout)}, C=C, side="left")
        check("syrk", {"X": strided(X, layout)}, C=None, beta=0.0, side="right")
        check("symm_mm", {"A": strided(X, layout), "B": strided(B, layout)}, C=C)


def test_batches_of_any_shape():
    X = normal(2, 3, 17, 20)
    check("syrk", {"X": X}, C=None, beta=0.0, side="left")
    check("syrk", {"X": X[0, 0]}, C=None, beta=0.0, side="left")
    check("syrk", {"X": X[:, :1].expand(2, 3, 17, 20)}, C=None, beta=0.0, side="left")


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_empty(shape):
    (result,) = operators.run(
        "syrk", {"X": torch.empty(shape)}, C=None, alpha=1.0, beta=0.0, side="left", config=TILES
    )
    assert not result.any()


def test_addend_is_not_read_when_beta_is_zero():
    C = torch.full((1, 16, 16), torch.nan)
    check("syrk", {"X": normal(1, 16, 16)}, C=C, beta=0.0, side="left")


@pytest.mark.parametrize(
    ("dtype", "n"), [(torch.float32, 32), (torch.float32, 19), (torch.bfloat16, 32)], ids=str
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_covariance_is_updated_in_its_place(interpreted, dtype, n, side):
    S, X = symmetric(2, n, n, dtype=dtype), normal(2, n, 24)
    scalars = {"beta": 0.9, "alpha": 0.1, "side": side}
    for factor in (X, X.bfloat16(), X.double()):
        tensors = {"S": S, "X": factor if side == "left" else factor.mT}
        (result,) = operators.run("gram_ema_", tensors, config=TILES, **scalars)
        plain = S.clone()
        composite.gram.gram_ema_(plain, tensors["X"], **scalars)
        assert torch.equal(result, result.mT), "the result is not symmetric"
        expected = gram_oracle.gram_ema(**tensors, **scalars)
        assert_accurate(result, plain, expected, bound=BOUND[dtype])
    assert interpreted == ["symmetric_product_kernel"] * 3


@pytest.mark.parametrize("n", [32, 19])
def test_only_the_lower_triangle_of_a_covariance_is_read(n):
    S, X = symmetric(2, n, n), normal(2, n, 24)
    garbage = S.tril() + torch.full((n, n), torch.nan).triu(1)
    scalars = {"beta": 0.9, "alpha": 0.1, "side": "left"}
    (clean,) = operators.run("gram_ema_", {"S": S, "X": X}, config=TILES, **scalars)
    (result,) = operators.run("gram_ema_", {"S": garbage, "X": X}, config=TILES, **scalars)
    assert torch.equal(result, clean)


def test_poison_stays_in_its_rows_and_columns():
    X = normal(3, 20, 30)
    X[1, 4, 5] = torch.nan
    (result,) = operators.run("syrk", {"X": X}, C=None, alpha=1.0, beta=0.0, side="left", config=TILES)
    poisoned = torch.zeros(3, 20, 20, dtype=torch.bool)
    poisoned[1, 4], poisoned[1, :, 4] = True, True
    assert torch.equal(result.isnan(), poisoned)


def test_the_same_bits_twice_and_in_a_batch():
    X = normal(3, 40, 24)
    first = check("syrk", {"X": X}, C=None, beta=0.0, side="left")
    assert torch.equal(check("syrk", {"X": X}, C=None, beta=0.0, side="left"), first)
    assert torch.equal(check("syrk", {"X": X[1]}, C=None, beta=0.0, side="left"), first[1])


@pytest.mark.parametrize(("batch", "n"), [(129, 4096), (1, 46400)])
def test_tiles_behind_2_to_the_31_elements_find_their_place(batch, n):
    """Only the last tile is computed; what it does not touch of 4 GB is never there."""
    X = torch.zeros(batch, n, 16, dtype=torch.bfloat16)
    X[-1, -64:] = normal(64, 16, dtype=torch.bfloat16)
    out = torch.empty(batch, n, n, dtype=torch.bfloat16)
    config = ProductConfig(block=64, block_k=16, num_warps=4, num_stages=3)
    with interpreter.last_programs(1):
        operators.file_of("syrk").syrk(X, C=None, alpha=1.0, beta=0.0, side="left", out=out, config=config)
    tile = X[-1, -64:].double()
    assert_accurate(out[-1, -64:, -64:], (tile @ tile.mT).bfloat16(), tile @ tile.mT, bound=8e-3)


def test_shipped_configurations():
    X = normal(1, 144, 80)
    for config in (SMALL, LARGE):
        check("syrk", {"X": X.half()}, C=None, beta=0.0, side="left", config=config[2])
        check("syrk", {"X": X}, C=None, beta=0.0, side="left", config=config[4])
    check("syrk", {"X": X}, C=None, beta=0.0, side="left", config=None)


def test_every_tile_has_its_place():
    """The float32 square root that finds a tile is off by no more than one, at both ends of each column."""
    from kpop_kernels.backends.triton.launch import launch
    from tests.emulation.triton.kernels import upper_tile_kernel

    column = torch.arange(2**15, dtype=torch.int32)
    for t, row in ((column * (column + 1) // 2, 0 * column), (column * (column + 3) // 2, column)):
        i, j = torch.empty_like(t), torch.empty_like(t)
        launch(upper_tile_kernel, (1,), (t, i, j), TILES, BLOCK=2**15)
        assert torch.equal(i, row) and torch.equal(j, column)


def test_tiles_are_large_where_they_fill_a_device():
    def chosen(itemsize, order, in_registers=False):
        return product_config(itemsize, order, operands_in_registers=in_registers)

    assert chosen(2, 4096) == LARGE[2] and chosen(2, 512) == SMALL[2] and chosen(4, 4096) == LARGE[4]
    assert chosen(4, 4096, in_registers=True) == SMALL[4]
    assert chosen(2, 4096, in_registers=True) == LARGE_IN_REGISTERS[2]


def test_what_is_beside_a_matrix_does_not_change_how_it_is_cut():
    from kpop_kernels.backends.triton.symmetric import by_configuration

    few, many, large = torch.empty(1, 512, 512), torch.empty(900, 512, 512), torch.empty(1, 4096, 4096)
    assert by_configuration([few, large], 4, None) == {SMALL[4]: [0], LARGE[4]: [1]}
    assert by_configuration([many, large, few], 4, None) == {SMALL[4]: [0, 2], LARGE[4]: [1]}
    assert by_configuration([many, large], 4, TILES) == {TILES: [0, 1]}


BUGS = [
    ("multiply", "(r[:, None] < rows - i * BLOCK) & (k[None, :] < left)", "r[:, None] < rows - i * BLOCK"),
    ("multiply", "(k[:, None] < left) & (r[None, :] < columns - j * BLOCK)", "k[:, None] < left"),
    ("multiply", "r[None, :] < columns - j * BLOCK)\n\n", "r[None, :] <= columns - j * BLOCK)\n\n"),
    ("multiply", "values = tl.where(r[:, None] >= r[None, :], values, tl.trans(values))", "values = values"),
    ("multiply", "store_tile(ptr, tl.trans(values), j, i,", "store_tile(ptr, values, j, i,"),
    ("multiply", "    if i != j:\n        store_tile", "    if i < j:\n        store_tile"),
    ("multiply", "a_ptr += BLOCK_K * a_column", "a_ptr += BLOCK_K"),
    ("multiply", "tl.where(triangle(j) > t, j - 1, j)", "j - 1"),
    ("symmetric", "acc *= alpha", "acc *= beta"),
    ("symmetric", "b_ptr += matrix * b_batch", "b_ptr += matrix * a_batch"),
    ("symmetric", "store_mirrored(out_ptr + matrix * n * n", "store_mirrored(out_ptr + matrix * n"),
]


@pytest.mark.parametrize(("file", "old", "new"), BUGS, ids=[bug[2] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, file, old, new):
    broken = operators.mutated("symm_mm", file, tmp_path, old, new)
    A = normal(2, 64, 80)[:, :48]
    with pytest.raises((AssertionError, broken.triton.runtime.errors.InterpreterError), match=FOUND):
        check("symm_mm", {"A": A, "B": A.mT.contiguous()}, C=symmetric(2, 48, 48), module=broken, config=WIDE)
        A = A.mT.contiguous().mT
        check("symm_mm", {"A": A, "B": A.mT}, C=None, beta=0.0, module=broken, config=WIDE)
        C = symmetric(2, 48, 48).tril() + torch.full((48, 48), torch.nan).triu(1)
        tensors = {"A": A, "B": A.mT}
        (result,) = operators.run("symm_mm", tensors, module=broken, C=C, **SCALARS, config=WIDE)
        assert torch.equal(result, result.mT), "the result is not symmetric"
        # Of two factors that commute the product is symmetric but for its rounding.
        S = symmetric(2, 48, 48)
        square = S.double() @ S.double()
        check("symm_mm", {"A": S, "B": square.float()}, C=None, beta=0.0, module=broken, config=WIDE)
