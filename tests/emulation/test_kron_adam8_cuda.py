"""Adam in a rotated basis with 8-bit moments of the CUDA backend, emulated: the bits of the separate operators."""

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels.backends import cuda as package
from kpop_kernels.backends.cuda import native
from tests.emulation import address_sanitizer, cuda_emulator
from tests.emulation.cuda_backend import emulated, operator
from tests.emulation.tools import require_tool
from tests.guards import Guarded
from tests.ops.grids import BOTH
from tests.ops.launch import LAYOUTS, assert_same_bits, outcome, strided
from tests.ops.test_kron_adam8 import CHANGES, RANDOM, SCALARS, WRITTEN, arguments, assert_right

ORDERS = cuda_emulator.ORDERS
KERNELS = "kron_*.cu"
SHAPES = [
    # batch, m, n, kinds of the left and right factor
    ((), 1, 1, BOTH),
    ((), 3, 5, BOTH),
    ((), 17, 33, BOTH),
    ((), 2, 128, BOTH),
    ((), 64, 33, ("shared", "none")),
    ((), 17, 32, ("none", "shared")),
    ((), 31, 40, ("none", "none")),
    ((3,), 16, 32, ("each", "shared")),
    ((0,), 5, 7, ("each", "shared")),
]


@pytest.fixture(autouse=True)
def compiler(request):
    require_tool(request, "g++ on x86-64", cuda_emulator.available())


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(7)


def check(tensors, **changes):
    scalars = SCALARS | RANDOM | changes
    ours = outcome(operator("kron_adam8_"), tensors, WRITTEN, **scalars)
    assert_right(ours, operator("kron_rotate"), tensors, **scalars)


def listed(items, **scalars):
    """Take the steps of a list between guard bands, whose numbers come as lists; return what was written."""
    copies = [{name: Guarded(t) for name, t in item.items() if t is not None} for item in items]
    lists = [[copy[name].tensor if name in copy else None for copy in copies] for name in items[0]]
    operator("kron_adam8_foreach_")(*lists, **scalars)
    for copy, found in zip(copies, scalars["found_inf"], strict=True):
        for name, guarded in copy.items():
            written = name in WRITTEN and not found
            guarded.assert_intact(name) if written else guarded.assert_unchanged(name)
    return [[copy[name].tensor for name in WRITTEN] for copy in copies]


@pytest.mark.parametrize("order", ORDERS)
def test_a_list_of_mixed_shapes_and_dtypes_is_one_launch(generator, order):
    """Each with its own step, stream, offset and found_inf; the one that found an infinity is left alone."""
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    items = [arguments(generator, *shape, dtypes[i % 3]) for i, shape in enumerate(SHAPES)]
    count = len(items)
    steps, streams, offsets = range(3, 3 + count), range(count), [5 * i for i in range(count)]
    found = [None if i % 2 else torch.tensor(float(i == 4)) for i in range(count)]
    shared = SCALARS | {"seed": RANDOM["seed"]}
    numbers = {"step": list(map(torch.tensor, steps)), "stream": list(streams), "offset": offsets}
    with emulated(order, only=KERNELS) as cuda:
        results = listed(items, found_inf=found, **numbers, **shared)
        assert cuda.launches() == ["kpop::kron_adam8<128>"]
        for i, (item, ours) in enumerate(zip(items, results, strict=True)):
            places = {"step": steps[i], "stream": streams[i], "offset": offsets[i]}
            if not found[i]:
                assert_right(ours, operator("kron_rotate"), item, **places, **shared)


@pytest.mark.parametrize(
    "change",
    [
        *CHANGES,
        {"block_size": 8},
        {"block_size": 264},
        {"block_size": 1024, "exp_avg_basis": "original"},
    ],
    ids=str,
)
def test_every_option(generator, change):
    with emulated("shuffled", seed=1, only=KERNELS):
        for kinds in BOTH, ("shared", "none"), ("none", "none"):
            block_size = change.get("block_size", 256)
            check(arguments(generator, (), 31, 45, kinds, block_size=block_size), **change)


def test_the_longest_sides(generator):
    with emulated("reversed", only=KERNELS) as cuda:
        check(arguments(generator, (), 127, 66, BOTH))
        check(arguments(generator, (), 5, 128, BOTH), exp_avg_basis="original")
        launches = [name for name in cuda.launches() if "adam8" in name]
        assert launches == ["kpop::kron_adam8<128>"] * 2


def test_layouts(generator):
    tensors = arguments(generator, (2,), 16, 32, ("each", "each"))
    with emulated(only=KERNELS):
        for layout in LAYOUTS:
            given = {name: t if t.ndim < 2 else strided(t, layout) for name, t in tensors.items()}
            check(given)
            check(given, exp_avg_basis="original")


def test_without_bases_it_is_adam8(generator):
    tensors = arguments(generator, (), 40, 43, ("none", "none"))
    with emulated():
        rotated = outcome(operator("kron_adam8_"), tensors, WRITTEN, **SCALARS, **RANDOM)
        plain = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        assert_same_bits(rotated, outcome(operator("adam8_"), plain, WRITTEN, **SCALARS, **RANDOM))


def test_lists_longer_than_a_launch_holds(generator):
    tensors = arguments(generator, (), 3, 2, BOTH)
    items = [{name: tensor.clone() for name, tensor in tensors.items()} for _ in range(130)]
    numbers = {"step": [torch.tensor(7)] * 130, "stream": [3] * 130, "offset": [16] * 130}
    shared = SCALARS | {"seed": RANDOM["seed"]}
    with emulated(only=KERNELS) as cuda:
        results = listed(items, found_inf=[None] * 130, **numbers, **shared)
        assert cuda.launches() == ["kpop::kron_adam8<32>"] * 2
        one = outcome(operator("kron_adam8_"), tensors, WRITTEN, **SCALARS, **RANDOM)
    for result in results:
        assert_same_bits(result, one)


def test_numbers_from_elsewhere_are_passed_by_value(generator, monkeypatch):
    elsewhere = lambda number, dtype, device: native.Number(number, dtype, torch.device("meta"))
    monkeypatch.setattr("kpop_kernels.backends.cuda.kron_adam8.Number", elsewhere)
    tensors = arguments(generator, (), 9, 7, BOTH)
    with emulated(only=KERNELS) as cuda:
        check(tensors)
        cuda.launches()
        scalars = SCALARS | RANDOM | {"found_inf": torch.tensor(1.0)}
        unchanged = outcome(operator("kron_adam8_"), tensors, WRITTEN, **scalars)
        assert cuda.launches() == []
    assert_same_bits(unchanged, [tensors[name] for name in WRITTEN])


def test_what_is_refused(monkeypatch):
    monkeypatch.setattr(package, "absent_because", lambda: None)
    monkeypatch.setattr(package, "DEVICES", ("cpu",))
    backend = backends.Backend("cuda")
    refused = lambda *shape, **options: (
        not backend.serves("kron_adam8_", torch.zeros(shape), call=((torch.zeros(shape),), options))
    )
    assert refused(129, 2) and refused(2, 129) and not refused(128, 128)
    assert refused(3, 5, 7) and not refused(1, 5, 7) and not refused(3, 16, 32)
    assert refused(5, 7, block_size=1032) and not refused(5, 7, block_size=1024)
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(
        ValueError, match=r"kron_adam8_: backend 'cuda' takes matrices of whole blocks of 256, or"
    ):
        backend.kron_adam8_(*arguments(generator, (2,), 3, 5, BOTH).values(), **SCALARS, **RANDOM)


BUGS = {
    "tables in part": ("kron_adam8.cuh", ("arguments.map->values, 2 * N", "arguments.map->values, 4 * N")),
    "scales not moved": ("kron_adam8.cuh", ("own.affine.scales + blocks", "own.affine.scales")),
    "offset not moved": ("kron_adam8.cuh", ("own.offset + static_cast<uint64_t>(elements)", "own.offset")),
    "rows of another length": ("kron_adam8.cuh", ("if (++x < columns) continue;", "if (++x < N) continue;")),
    "gradient not waited for": (
        "kron_adam8.cuh",
        ("    __syncthreads();\n    if (turn != AV", "    if (turn != AV"),
    ),
    "overwritten early": ("kron_adam8.cuh", ("if (turn == AVERAGE_GRADIENT) __sync", "if (turn < 0) __sync")),
    "second moment averaged twice": ("kron_adam8.cuh", ("if (turn == ROTATE_GRADIENT) {", "if (true) {")),
    "rotated moment not normalized": ("kron_adam8.cuh", ("if (turn == ROTATE_MOMENT) n", "if (turn < 0) n")),
}


@pytest.mark.parametrize(("name", "edit"), BUGS.values(), ids=BUGS)
def test_a_planted_bug_is_found(generator, name, edit):
    if address_sanitizer.loaded():
        pytest.skip("AddressSanitizer ends the process at what some of these bugs read out of bounds")
    several = arguments(generator, (3,), 16, 16, ("each", "shared"))
    odd = arguments(generator, (), 9, 13, BOTH)
    with pytest.raises(AssertionError):
        for order in ORDERS:
            with emulated(order, seed=3, edits={name: (edit,)}, only=KERNELS):
                for tensors in several, odd:
                    check(tensors)
                    check(tensors, exp_avg_basis="original")
