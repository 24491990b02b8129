"""Adam in a rotated basis with 8-bit moments in Triton's interpreter: bit for bit the separate operators."""

from functools import partial

import pytest
import torch
from triton.runtime.errors import InterpreterError

from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS
from kpop_kernels.tuning import ROWS_OF_256, RotationConfig
from python_ref import quantize as oracle
from python_ref.kron import rotate
from tests.emulation.triton import operators
from tests.emulation.triton.test_kron_rotate import CONFIG
from tests.errors import assert_accurate, unit_roundoff
from tests.matrices import factors, normal
from tests.ops.grids import BOTH
from tests.ops.launch import assert_same_bits

pytestmark = pytest.mark.usefixtures("interpreted")

BLOCKS = ("exp_avg_codes", "exp_avg_scales", "exp_avg_zero_points", "exp_avg_sq_codes", "exp_avg_sq_absmax")
ADAM = {"lr": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
RANDOM = {"step": 7, "seed": 2**63, "stream": 3, "offset": 0}
SHAPES = [
    ((), 1, 1, BOTH),
    ((), 3, 5, BOTH),
    ((), 2, 256, BOTH),
    ((), 33, 17, BOTH),
    ((3,), 5, 33, ("each", "shared")),
    ((), 17, 32, ("none", "shared")),
    ((), 17, 32, ("shared", "none")),
    ((), 17, 33, ("none", "none")),
    ((), 0, 3, BOTH),
]
WIDE = RotationConfig(block_m=64, block_n=256, block_k=64, num_warps=8, num_stages=2)
ROWS = [
    # Blocks are rows of tiles: averages are the end of a product.
    ((), 1, 256, BOTH),
    ((), 65, 256, BOTH),
    ((), 33, 256, ("none", "shared")),
    ((2,), 17, 512, ("each", "none")),
]


def tiles(n):
    """Return small tiles, but for wide matrices few."""
    return WIDE if n >= 256 else CONFIG


def arguments(batch, m, n, kinds, dtype=torch.float32, block_size=256):
    generator = torch.Generator().manual_seed(m * n)
    Q_L, Q_R = factors(generator, batch, (m, n), kinds, torch.float32)
    param, grad = (normal(generator, *batch, m, n, dtype=dtype) for _ in range(2))
    old = normal(generator, *batch, m, n, dtype=torch.float32)
    blocks = (
        *oracle.quantize_int8(old, block_size=block_size),
        *oracle.quantize_dynamic8(old.square() * 0.7 + 0.1, block_size=block_size),
    )
    return {"param": param, "grad": grad, **dict(zip(BLOCKS, blocks, strict=True)), "Q_L": Q_L, "Q_R": Q_R}


def rotated(G, Q_L, Q_R, rows=False):
    """Return what the backend's own rotation gives; its last product in the tiles of 256 columns if they are."""
    tensors = {"G": G.to(torch.float32), "Q_L": Q_L, "Q_R": Q_R}
    if rows and Q_L is not None and Q_R is not None:
        tensors["G"], tensors["Q_L"] = rotated(G, Q_L, None), None
    return operators.run("kron_rotate", tensors, config=ROWS_OF_256 if rows else tiles(G.shape[-1]))[0]


def expected(tensors, *, exp_avg_basis="rotated", maximize=False, block_size=256, clip=None, **random):
    """Return the blocks and the parameter after the separate operators, given the rotations."""
    composite, random = backends.get("composite"), RANDOM | random
    param, grad, Q_L, Q_R = (tensors[name] for name in ("param", "grad", "Q_L", "Q_R"))
    blocks = [tensors[name].clone() for name in BLOCKS]
    G = -grad.to(torch.float32) if maximize else grad.to(torch.float32)
    original = exp_avg_basis == "original"
    rows = not original and block_size == 256 and not G.shape[-1] % 256 and not random["offset"] % 8
    turned = rotated(G, Q_L, Q_R, rows and not Q_L is Q_R is None)
    m = composite.ema_int8_(*blocks[:3], G if original else turned, beta=0.9, block_size=block_size, **random)
    v = composite.ema_sq_dynamic8_(*blocks[3:], turned, beta=0.95, block_size=block_size)
    m, step = rotated(m, Q_L, Q_R) if original else m, random["step"]
    N = (m.double() / (1 - 0.9**step)) / ((v.double() / (1 - 0.95**step)).sqrt() + ADAM["eps"])
    limit = oracle.adam_bound(0.9, 0.95) if clip is None else clip
    N = N.clamp(-limit, limit)
    return blocks, (1 - 0.1 * 0.1) * param.double() - 0.1 * rotate(N, Q_L, Q_R, inverse=True)


def assert_right(tensors, ours, **scalars):
    param, *blocks = ours
    same, exact = expected(tensors, **scalars)
    assert_same_bits(blocks, same)
    bound = 2e-7 + (unit_roundoff(param.dtype) if param.dtype != torch.float32 else 0)
    assert_accurate(param, exact.to(param.dtype), exact, bound=bound, name="param")


def check(tensors, module=None, **scalars):
    scalars = RANDOM | scalars
    config = tiles(tensors["param"].shape[-1])
    ours = operators.run("kron_adam8_", tensors, module=module, config=config, **ADAM, **scalars)
    assert_right(tensors, ours, **scalars)


@pytest.mark.parametrize(("batch", "m", "n", "kinds"), SHAPES + ROWS)
def test_moments_have_the_bits_of_the_separate_operators(interpreted, batch, m, n, kinds):
    check(arguments(batch, m, n, kinds))
    rows = (batch, m, n, kinds) in [*ROWS, SHAPES[2]]
    assert ("adam8_product_kernel" in interpreted) == rows
    assert ("direction8_kernel" in interpreted) == (m > 0 and not rows)


def test_many_blocks_in_a_row():
    check(arguments((), 64, 4096, ("shared", "none"), torch.bfloat16))


@pytest.mark.parametrize(
    "change",
    [
        {"maximize": True},
        {"exp_avg_basis": "original"},
        {"exp_avg_basis": "original", "maximize": True},
        {"block_size": 24},
        {"block_size": 2048},
        {"offset": 2**35 - 3},
        {"step": 2**24 + 1},
        {"clip": 0.5},
    ],
    ids=str,
)
def test_every_option(change):
    block_size = change.get("block_size", 256)
    for n, kinds in (33, BOTH), (33, ("none", "none")), (256, ("shared", "none")):
        check(arguments((), 9, n, kinds, block_size=block_size), **change)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_16_bits(dtype):
    for kinds in BOTH, ("shared", "none"), ("none", "none"):
        check(arguments((), 17, 19, kinds, dtype))
    check(arguments((), 3, 256, ("shared", "none"), dtype))


@pytest.mark.parametrize(("n", "kinds"), [(7, BOTH), (7, ("none", "none")), (256, BOTH)])
def test_found_inf_is_read_on_the_device(n, kinds):
    tensors = arguments((), 5, n, kinds)
    ours = operators.run("kron_adam8_", tensors, config=tiles(n), found_inf=torch.ones(()), **ADAM, **RANDOM)
    assert_same_bits(ours, [tensors[name] for name in ("param", *BLOCKS)])


@pytest.mark.parametrize(("columns", "kinds", "launches"), [(32, BOTH, 6), (256, ("shared", "none"), 3)])
def test_a_list_takes_as_many_launches_as_an_item(interpreted, columns, kinds, launches):
    counts = []
    for copies in 1, 3:
        items = [arguments((), 16, columns * n, kinds) for n in range(1, copies + 1)]
        each = zip(*(tensors.values() for tensors in items), strict=True)
        lists = [[None if t is None else t.clone() for t in column] for column in each]
        numbers = range(copies)
        interpreted.clear()
        operator, module = OPERATORS["kron_adam8_foreach_"], operators.file_of("kron_adam8_foreach_")
        operator.guarded(partial(module.kron_adam8_foreach_, config=tiles(columns)))(
            *lists,
            **ADAM,
            seed=5,
            step=[torch.tensor(7 + i) for i in numbers],
            stream=[3 + i for i in numbers],
            offset=[8 * i for i in numbers],
            found_inf=[None for _ in numbers],
        )
        counts.append(list(interpreted))
        for i, (tensors, *ours) in enumerate(zip(items, lists[0], *lists[2:7], strict=True)):
            assert_right(tensors, ours, seed=5, step=7 + i, stream=3 + i, offset=8 * i)
    assert counts[0] == counts[1]
    assert len(counts[0]) == launches


BUGS = [
    ("kron_adam8", "left_transposed=True", "left_transposed=False"),
    ("kron_adam8", "        g = -g", "        g = g"),
    ("kron_adam8", "m * correction1", "m"),
    ("adam8_product", "upper if half == 0 else lower", "upper"),
    ("adam8_product", "    if MAXIMIZE:", "    if not MAXIMIZE:"),
    ("adam8_product", "above = half * (BLOCK_M // 2)", "above = 0"),
    ("adam8_product", "rows - above, columns", "rows, columns"),
    ("adam8_product", "*(first + element, MAXIMIZE,", "*(first, MAXIMIZE,"),
    ("adam8_product", "ROWS) * (n // BLOCK_SIZE)", "ROWS)"),
    ("adam8_product", "row_ptr, 4, 0) != 0", "row_ptr, 4, 0) == 0"),
    ("adam8_product", "row_ptr + EXTRA + 5)", "row_ptr + EXTRA + 4)"),
    ("adam8_product", "v * correction2", "v"),
    ("kron_adam8", "load_as_float32(scalars_ptr + 4) != 0", "load_as_float32(scalars_ptr + 4) == 0"),
    ("kron_adam8", "tensor_of(row, 8, TYPES, ALIGNED)", "tensor_of(row, 7, TYPES, ALIGNED)"),
    ("kron_adam8", "store_rounded(out_ptr, m, inside)", "store_rounded(out_ptr, m)"),
    ("moments", "affine_codes(k, scale, zero_point), inside)", "affine_codes(k, scale, zero_point))"),
]


@pytest.mark.parametrize(("file", "old", "new"), BUGS, ids=[bug[2] for bug in BUGS])
def test_planted_bug_is_found(tmp_path, file, old, new):
    broken = operators.mutated("kron_adam8_", file, tmp_path, old, new)
    with pytest.raises((AssertionError, InterpreterError)):
        if file == "adam8_product":
            check(arguments((), 65, 512, ("shared", "none")), module=broken, maximize=True, offset=8)
        check(arguments((), 17, 33, BOTH), module=broken, maximize=True)
