import pytest
import torch

from python_ref import quantize as oracle
from tests.emulation.metal_backend import require_clang, run_guarded, serve_metal
from tests.emulation.metal_emulator import ORDERS
from tests.emulation.metal_modes import MODES
from tests.ops.blocks import INF, LARGE, NAN, SIZES, assert_same, values
from tests.ops.launch import LAYOUTS, Launcher, outcome, strided
from tests.ops.lists8 import with_tensors

KEY = {"seed": 2**64 - 3, "step": 5, "stream": 7}
SPECIAL = [NAN, -NAN, INF, -INF, 0.0, -0.0, 3.4028234e38, -3.4e38, 3.3961e38, 1e-39, -1e-45, 1.0, 2.0**-126]


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


def check(x, **key):
    key = KEY | key
    results = run_guarded("stochastic_round_bf16", {"x": x}, **key)
    assert_same(results, [oracle.stochastic_round_bf16(x, **key)])


@pytest.mark.parametrize("mode", MODES)
def test_matches_reference(monkeypatch, mode):
    for i, order in enumerate(ORDERS):
        compiler = serve_metal(monkeypatch, mode=mode, order=order)
        for j, size in enumerate(SIZES[:7]):
            check(values(i + j, size), seed=10 * i + j)
        check(torch.tensor(SPECIAL).repeat(100))
        assert set(compiler.launches) == {"stochastic_round_bf16"}


def test_every_upper_half_of_the_bits(monkeypatch):
    serve_metal(monkeypatch, mode="flush")
    upper = torch.arange(-(2**15), 2**15, dtype=torch.int32) << 16
    for low in (0, 1, 0x8000, 0xFFFF):
        check((upper | low).view(torch.float32))


@pytest.mark.parametrize("offset", [1, 7, 8, 2**32 - 100, 2**35 - 3, 2**35 + 8, 2**62])
def test_offsets_and_counter_carries(monkeypatch, offset):
    serve_metal(monkeypatch)
    check(values(5, 3000), offset=offset)


def test_many_elements(monkeypatch):
    serve_metal(monkeypatch)
    check(values(2, 1_000_003))
    x = values(95, LARGE)
    rounded = Launcher("stochastic_round_bf16", "metal")(x, **KEY)
    assert_same([rounded], [oracle.stochastic_round_bf16(x, **KEY)])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(monkeypatch, layout):
    serve_metal(monkeypatch)
    x = values(9, 65, 33)
    results = outcome(Launcher("stochastic_round_bf16", "metal"), {"x": strided(x, layout)}, (), **KEY)
    assert_same(results, [oracle.stochastic_round_bf16(x, **KEY)])


def test_lists_are_their_items(monkeypatch):
    serve_metal(monkeypatch)
    xs = [values(i, *shape) for i, shape in enumerate([(5,), (3, 300), (0,), ()])]
    function = Launcher("stochastic_round_bf16_foreach", "metal")
    numbers = {"step": [2, 3, 2, 4], "stream": [3, 4, 5, 6], "offset": [0, 3, 0, 8]}
    results = function(xs, seed=1, **with_tensors(numbers))
    for i, x in enumerate(xs):
        item = {name: column[i] for name, column in numbers.items()}
        expected = oracle.stochastic_round_bf16(x, seed=1, **item)
        assert_same([results[i]], [expected])
