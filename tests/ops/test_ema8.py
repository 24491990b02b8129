"""ema_int8_ and ema_sq_dynamic8_: the oracle's bits on every backend, floats included."""

from functools import cache

import pytest
import torch

import kpop_kernels
from python_ref import quantize as oracle
from tests.ops.blocks import BLOCK_SIZES, DTYPES, LARGE, SIZES, VARIANTS, assert_same, awkward_tensor, values
from tests.ops.launch import LAYOUTS, Launcher, assert_compiles, outcome, strided
from tests.ops.lists8 import with_tensors

KEY = {"seed": 0xFEDCBA9876543210, "step": 77, "stream": 12}
BETAS = (0.0, 0.9, 0.999)


def old_blocks(x, block_size):
    """Averages of another magnitude than what is averaged now."""
    old = values(1000 + x.numel(), *x.shape) * 3
    affine = oracle.quantize_int8(old, block_size=block_size, seed=1)
    return affine, oracle.quantize_dynamic8(old.abs(), block_size=block_size)


def check(variant, x, beta=0.9, block_size=256, **key):
    """Compare averages and blocks with the oracle's; blocks are written in place."""
    affine, dynamic = old_blocks(x, block_size)
    key = KEY | key
    options = {"beta": beta, "block_size": block_size}
    codes = [tensor.clone() for tensor in affine]
    m = Launcher("ema_int8_", variant)(*codes, x, **options, **key)
    expected_m, expected_codes = oracle.ema_int8(affine, x, **options, **key)
    assert_same([m, *codes], [expected_m, *expected_codes])
    codes = [tensor.clone() for tensor in dynamic]
    v = Launcher("ema_sq_dynamic8_", variant)(*codes, x, **options)
    expected_v, expected_codes = oracle.ema_sq_dynamic8(dynamic, x, **options)
    assert_same([v, *codes], [expected_v, *expected_codes])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matches_reference(variant, block_size, dtype):
    for numel in SIZES[:6]:
        for beta in BETAS:
            key = {"seed": block_size << 40 | numel, "step": numel, "stream": block_size}
            check(variant, values(numel + block_size, numel, dtype=dtype), beta, block_size, **key)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("numel", SIZES[6:])
def test_large_tensors(variant, numel):
    check(variant, values(numel, numel), offset=2**35 - 8 * 1000 + 3)


@cache
def expected_of_eight_million():
    x = values(5, LARGE)
    affine, dynamic = old_blocks(x, 256)
    return (
        x,
        affine,
        dynamic,
        oracle.ema_int8(affine, x, beta=0.9, **KEY),
        oracle.ema_sq_dynamic8(dynamic, x, beta=0.9),
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_eight_million_elements(variant):
    x, affine, dynamic, (m, new_affine), (v, new_dynamic) = expected_of_eight_million()
    codes = [tensor.clone() for tensor in affine]
    assert_same([Launcher("ema_int8_", variant)(*codes, x, beta=0.9, **KEY), *codes], [m, *new_affine])
    codes = [tensor.clone() for tensor in dynamic]
    assert_same([Launcher("ema_sq_dynamic8_", variant)(*codes, x, beta=0.9), *codes], [v, *new_dynamic])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("beta", BETAS)
def test_awkward_blocks_leave_the_others_alone(variant, beta):
    check(variant, awkward_tensor(), beta)


@pytest.mark.parametrize("variant", VARIANTS)
def test_poisoned_blocks_stay_poisoned(variant):
    x = torch.ones(512)
    codes = [tensor.clone() for tensor in oracle.quantize_int8(torch.tensor([1.0, float("nan")]).repeat(128))]
    codes = [torch.cat([bad, good]) for bad, good in zip(codes, oracle.quantize_int8(x[:256]), strict=True)]
    m = Launcher("ema_int8_", variant)(*codes, x, beta=0.5, **KEY)
    assert m[:256].isnan().all() and (m[256:] == 1).all()
    assert codes[1].isnan().tolist() == [True, False]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strided_one", ["codes", "x"])
def test_layouts(variant, layout, strided_one):
    x = values(9, 2, 65, 33)
    affine, dynamic = old_blocks(x, 32)
    expected_m, expected_affine = oracle.ema_int8(affine, x, beta=0.9, block_size=32, **KEY)
    tensors = affine._asdict() | {"x": x}
    tensors[strided_one] = strided(tensors[strided_one], layout)
    averages = []

    def ema_int8_(*arguments, **options):
        averages.append(Launcher("ema_int8_", variant)(*arguments, beta=0.9, **options))

    written = outcome(ema_int8_, tensors, affine._fields, block_size=32, **KEY)
    assert_same([averages.pop(), *written], [expected_m, *expected_affine])
    expected_v, expected_dynamic = oracle.ema_sq_dynamic8(dynamic, x, beta=0.9, block_size=32)
    tensors = dynamic._asdict() | {"x": x}
    tensors[strided_one] = strided(tensors[strided_one], layout)

    def ema_sq_dynamic8_(*arguments, **options):
        averages.append(Launcher("ema_sq_dynamic8_", variant)(*arguments, beta=0.9, **options))

    written = outcome(ema_sq_dynamic8_, tensors, dynamic._fields, block_size=32)
    assert_same([averages.pop(), *written], [expected_v, *expected_dynamic])


@pytest.mark.parametrize("variant", VARIANTS)
def test_writes_the_average_to_out(variant):
    x = values(3, 30, 40)
    affine, dynamic = old_blocks(x, 256)
    out = torch.zeros(40, 30).mT
    result = Launcher("ema_int8_", variant)(*affine, x, beta=0.9, out=out, **KEY)
    assert result is out
    assert_same([out], [oracle.ema_int8(old_blocks(x, 256)[0], x, beta=0.9, **KEY)[0]])
    result = Launcher("ema_sq_dynamic8_", variant)(*dynamic, x, beta=0.9, out=out)
    assert result is out
    assert_same([out], [oracle.ema_sq_dynamic8(old_blocks(x, 256)[1], x, beta=0.9)[0]])


def columns(blocks):
    """Return a list of each field, copied."""
    return [[field.clone() for field in column] for column in zip(*blocks, strict=True)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_lists_are_their_items(variant):
    xs = [values(i, *shape) for i, shape in enumerate([(5,), (3, 300), (0,)])]
    blocks = [old_blocks(x, 64) for x in xs]
    options = {"beta": 0.9, "block_size": 64}
    lists = columns(affine for affine, _ in blocks)
    numbers = {"step": [8, 9, 8], "stream": [3, 4, 5], "offset": [0, 1, 2]}
    averages = Launcher("ema_int8_foreach_", variant)(*lists, xs, seed=9, **options, **with_tensors(numbers))
    for i, x in enumerate(xs):
        item_key = {name: column[i] for name, column in numbers.items()}
        m, affine = oracle.ema_int8(blocks[i][0], x, seed=9, **options, **item_key)
        assert_same([averages[i], *(column[i] for column in lists)], [m, *affine])
    lists = columns(dynamic for _, dynamic in blocks)
    averages = Launcher("ema_sq_dynamic8_foreach_", variant)(*lists, xs, **options)
    for i, x in enumerate(xs):
        v, dynamic = oracle.ema_sq_dynamic8(blocks[i][1], x, **options)
        assert_same([averages[i], *(column[i] for column in lists)], [v, *dynamic])


def test_public_functions():
    x = values(4, 100)
    affine, dynamic = old_blocks(x, 256)
    one, many = ([tensor.clone() for tensor in affine] for _ in range(2))
    m = kpop_kernels.ema_int8_(*one, x, beta=0.9, **KEY)
    (same,) = kpop_kernels.ema_int8_foreach_(*([tensor] for tensor in many), [x], beta=0.9, **KEY)
    assert_same([m, *one], [same, *many])
    one, many = ([tensor.clone() for tensor in dynamic] for _ in range(2))
    v = kpop_kernels.ema_sq_dynamic8_(*one, x, beta=0.9)
    (same,) = kpop_kernels.ema_sq_dynamic8_foreach_(*([tensor] for tensor in many), [x], beta=0.9)
    assert_same([v, *one], [same, *many])


def test_compiles():
    x = values(2, 5, 100)
    affine, dynamic = old_blocks(x, 256)
    fields = oracle.Affine._fields
    assert_compiles(
        kpop_kernels.ema_int8_, affine._asdict() | {"x": x}, fields, beta=0.9, **(KEY | {"seed": 1})
    )
    assert_compiles(kpop_kernels.ema_sq_dynamic8_, dynamic._asdict() | {"x": x}, dynamic._fields, beta=0.9)


REJECTED = {
    "shape": ({"x": torch.ones(3)}, ValueError, r"codes has shape \(2,\), it must be \(3,\) like the values"),
    "beta": ({"beta": 1.0}, ValueError, "beta is 1.0, it must be at least 0 and below 1"),
    "expanded": ({"codes": torch.ones(1).byte().expand(2)}, ValueError, "codes is expanded"),
}


@pytest.mark.parametrize(("change", "exception", "message"), REJECTED.values(), ids=REJECTED)
def test_rejects(change, exception, message):
    arguments = (
        oracle.quantize_int8(torch.ones(2))._asdict() | {"x": torch.ones(2), "beta": 0.9, **KEY} | change
    )
    with pytest.raises(exception, match="ema_int8_: .*" + message):
        kpop_kernels.ema_int8_(**arguments)


def test_rejects_blocks_that_share_memory():
    codes = torch.zeros(256, dtype=torch.uint8)
    with pytest.raises(ValueError, match="ema_int8_: codes is written and shares memory with zero_points"):
        kpop_kernels.ema_int8_(codes, torch.zeros(1), codes[:1], torch.ones(256), beta=0.9, **KEY)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_zero_gradient_stays_exactly_zero_for_500_steps(variant):
    g = torch.tensor([1.0, 0.0]).repeat(128)
    affine = [torch.zeros(256).byte(), torch.zeros(1), torch.zeros(1).byte()]
    dynamic = [torch.zeros(256).byte(), torch.zeros(1)]
    for step in range(1, 501):
        m = Launcher("ema_int8_", variant)(*affine, g, beta=0.9, seed=1, step=step, stream=0)
        v = Launcher("ema_sq_dynamic8_", variant)(*dynamic, g, beta=0.99)
    assert (m[1::2] == 0).all() and (v[1::2] == 0).all()
    assert m[::2].allclose(torch.ones(128), rtol=2e-2) and v[::2].allclose(torch.ones(128), rtol=2e-2)
