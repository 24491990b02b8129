"""Kronecker rotations in Triton's interpreter against the oracle, in tiles so small that there are several."""

import pytest
import torch
from triton.runtime.errors import InterpreterError

from kpop_kernels import backends
from kpop_kernels.tuning import RotationConfig
from python_ref.kron import rotate
from tests.emulation.triton import operators
from tests.errors import assert_accurate, relative_error, unit_roundoff
from tests.matrices import factors, normal, reflection
from tests.ops.grids import BOTH, SMALL_TWO_SIDED
from tests.ops.launch import LAYOUTS, strided

pytestmark = pytest.mark.usefixtures("interpreted")

CONFIG = RotationConfig(block_m=16, block_n=32, block_k=16, num_warps=4, num_stages=2)
SHAPES = (
    *SMALL_TWO_SIDED,
    ((), 128, 128, BOTH),
    ((2, 2), 5, 7, ("shared", "each")),
    ((), 7, 0, BOTH),
)


def arguments(batch, m, n, kinds, dtype=torch.float32):
    generator = torch.Generator().manual_seed(m * n)
    Q_L, Q_R = factors(generator, batch, (m, n), kinds, dtype)
    return {"G": normal(generator, *batch, m, n, dtype=dtype), "Q_L": Q_L, "Q_R": Q_R}


def check(tensors, *, inverse=False, module=None, config=CONFIG):
    (ours,) = operators.run("kron_rotate", tensors, module=module, config=config, inverse=inverse)
    composite = backends.get("composite").kron_rotate(*tensors.values(), inverse=inverse)
    bound = 5e-7 + (unit_roundoff(ours.dtype) if ours.dtype != torch.float32 else 0)
    assert_accurate(ours, composite, rotate(*tensors.values(), inverse=inverse), bound=bound)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(("batch", "m", "n", "kinds"), SHAPES)
def test_matches_the_oracle(batch, m, n, kinds, inverse):
    check(arguments(batch, m, n, kinds), inverse=inverse)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits(dtype, inverse):
    for shape in ((), 63, 65, BOTH), ((2,), 16, 48, ("each", "shared")):
        check(arguments(*shape, dtype), inverse=inverse)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_long_and_uneven_sides_in_tiles_that_are_shipped(dtype):
    check(arguments((), 257, 96, BOTH, dtype), config=None)
    generator = torch.Generator().manual_seed(3)
    tensors = {"G": normal(generator, 64, 4096, dtype=dtype)}
    tensors |= {name: reflection(generator, n, dtype) for name, n in (("Q_L", 64), ("Q_R", 4096))}
    check(tensors, config=RotationConfig(64, 512, 512, num_warps=8, num_stages=2))


def test_rotations_keep_the_norm_and_lead_back():
    tensors = arguments((2,), 63, 65, ("each", "shared"))
    (there,) = operators.run("kron_rotate", tensors, config=CONFIG)
    (back,) = operators.run("kron_rotate", tensors | {"G": there}, config=CONFIG, inverse=True)
    norms = [torch.linalg.matrix_norm(G.double()) for G in (tensors["G"], there)]
    torch.testing.assert_close(*norms, rtol=5e-7, atol=0.0)
    assert relative_error(back, tensors["G"].double()) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_mixed_dtypes(dtype):
    tensors = arguments((), 33, 17, BOTH, torch.bfloat16)
    check(tensors | {"Q_L": tensors["Q_L"].to(dtype)})
    check(tensors | {"Q_L": tensors["Q_L"].to(dtype), "Q_R": tensors["Q_R"].to(dtype)})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strided_one", ["G", "Q_L", "Q_R"])
def test_takes_any_strides(layout, strided_one):
    tensors = arguments((2,), 9, 19, ("each", "each"))
    check(tensors | {strided_one: strided(tensors[strided_one], layout)})


def test_one_product_is_one_launch_and_none_is_a_copy(interpreted):
    for kinds in ("none", "none"), ("shared", "none"), BOTH:
        interpreted.clear()
        check(arguments((3,), 5, 7, kinds))
        assert interpreted == ["product_kernel"] * sum(kind == "shared" for kind in kinds)


def test_the_middle_of_bfloat16_does_not_overflow_in_float16():
    tensors = arguments((), 16, 16, BOTH, torch.float16)
    tensors["G"] = torch.full((16, 16), 2.0**13, dtype=torch.float16)
    tensors["Q_L"] = torch.full((16, 16), 0.25, dtype=torch.float16) * 4
    tensors["Q_R"] = torch.eye(16, dtype=torch.float16) * 2.0**-4
    check(tensors)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_bad_values_poison_only_their_matrix(bad):
    tensors = arguments((3,), 17, 33, ("each", "shared"))
    (clean,) = operators.run("kron_rotate", tensors, config=CONFIG)
    tensors["G"][1, 2, 3] = bad
    (poisoned,) = operators.run("kron_rotate", tensors, config=CONFIG)
    assert not poisoned[1].isfinite().any()
    assert torch.equal(poisoned[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("precision", ["high", "highest"])
def test_tf32_is_used_where_torch_may_use_it(monkeypatch, precision):
    tile = operators.imported("product_tile")
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    assert tile.float32_products() == {"high": "tf32", "highest": "tf32x3"}[precision]


BUGS = [
    ("product_tile", "(r[:, None] < rows) & (s[None, :] < k - first)", "r[:, None] < rows"),
    ("product_tile", "(s[:, None] < k - first) & (c[None, :] < columns)", "s[:, None] < k - first"),
    ("product_tile", "(r < rows) & (c < columns)", "c < columns"),
    ("product_tile", "a_ptr += matrix * a_batch", "a_ptr += 0 * matrix * a_batch"),
    ("product_tile", "(matrix * m + first_row) * n + first_column", "first_row * n + first_column"),
    ("product_tile", "b_ptr += b_step", "b_ptr += a_step"),
    ("kron_rotate", "left_transposed=not inverse", "left_transposed=inverse"),
    ("kron_rotate", "right_transposed=inverse", "right_transposed=False"),
    ("kron_rotate", "X.reshape(X.shape[:-2].numel()", "X.mT.reshape(X.shape[:-2].numel()"),
]


@pytest.mark.parametrize(("file", "old", "new"), BUGS, ids=[bug[2] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, file, old, new):
    broken = operators.mutated("kron_rotate", file, tmp_path, old, new)
    with pytest.raises((AssertionError, InterpreterError)):
        check(arguments((2,), 33, 35, ("each", "shared")), module=broken)
        check(arguments((2,), 33, 35, ("each", "shared")), module=broken, inverse=True)
