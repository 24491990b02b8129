import pytest
import torch

from kpop_kernels.backends.metal._adam import update_scalars
from tests.emulation.metal_backend import require_clang, run_guarded, serve_metal
from tests.emulation.metal_cases import in_every_mode
from tests.guards import bits
from tests.ops.blocks import BLOCK_SIZES, DTYPES, LARGE, NAN, ODD_BLOCK_SIZES, assert_same, values
from tests.ops.launch import LAYOUTS, Launcher, outcome, strided
from tests.ops.lists8 import with_tensors
from tests.ops.test_adam8 import (
    CHANGES,
    SCALARS,
    WRITTEN,
    arguments,
    awkward_arguments,
    expected,
    zero_state,
)

SCALARS = SCALARS | {"stream": 3}


@pytest.fixture(autouse=True)
def clang(pytestconfig):
    require_clang(pytestconfig)


def assert_matches(results, oracles, mode):
    """Moments bit for bit in every mode; parameters too, where the GPU's root and quotient are correct."""
    assert_same(results[1:], oracles[1:])
    if mode != "fast":
        assert_same(results[:1], oracles[:1])
    rtol = 1e-6 if oracles[0].dtype == torch.float32 else 2**-7
    torch.testing.assert_close(results[0], oracles[0], rtol=rtol, atol=1e-8, equal_nan=True)


def check(tensors, mode, **changes):
    scalars = SCALARS | changes
    assert_matches(run_guarded("adam8_", tensors, WRITTEN, **scalars), expected(tensors, **scalars), mode)


@in_every_mode
def test_matches_reference(monkeypatch, mode, order, dtype, seed):
    serve_metal(monkeypatch, mode=mode, order=order)
    for i, block_size in enumerate((*BLOCK_SIZES, *ODD_BLOCK_SIZES)):
        tensors = arguments(3001, dtype=dtype, block_size=block_size)
        tensors["param"] = tensors["param"].to(DTYPES[(seed + i) % 3])
        check(tensors, mode, block_size=block_size, seed=seed, **CHANGES[(seed + i) % len(CHANGES)])
    for size in (0, 1, 7, 255, 256, 257):
        check(arguments(size, dtype=dtype), mode)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_scalar(monkeypatch, change):
    serve_metal(monkeypatch)
    check(arguments(50, 61), "exact", **change)


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("block_size", [8, 256])
def test_awkward_gradients(monkeypatch, block_size, mode):
    serve_metal(monkeypatch, mode=mode)
    tensors = awkward_arguments(block_size)
    scalars = SCALARS | {"block_size": block_size}
    results = run_guarded("adam8_", tensors, WRITTEN, **scalars)
    # The square of 1e30 is infinite: fast math promises nothing of its root.
    compared = slice(None) if mode == "exact" else slice(1, None)
    assert_same(results[compared], expected(tensors, **scalars)[compared])


def test_every_pair_of_dtypes(monkeypatch):
    compiler = serve_metal(monkeypatch)
    for param in DTYPES:
        for grad in DTYPES:
            tensors = arguments(1000, dtype=grad)
            check(tensors | {"param": tensors["param"].to(param)}, "exact")
    assert len(set(compiler.launches)) == 9


def test_eight_million_elements(monkeypatch):
    serve_metal(monkeypatch, mode="fast")
    tensors = arguments(LARGE)
    oracles = expected(tensors, **SCALARS)
    Launcher("adam8_", "metal")(*tensors.values(), **SCALARS)
    assert_matches([tensors[name] for name in WRITTEN], oracles, "fast")


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_nan_in_the_gradient_reaches_its_element_and_the_moments_of_its_block(monkeypatch, mode):
    serve_metal(monkeypatch, mode=mode)
    tensors = arguments(1024)
    tensors["grad"][300], tensors["grad"][600] = NAN, float("inf")
    param, _, scales, _, _, absmax = run_guarded("adam8_", tensors, WRITTEN, **SCALARS)
    assert param.isnan().nonzero().tolist() == [[300], [600]]
    assert scales.isnan().tolist() == absmax.isnan().tolist() == [False, True, True, False]


@pytest.mark.parametrize("found", [0.0, 1.0, NAN])
def test_found_inf_decides_whether_anything_changes(monkeypatch, found):
    serve_metal(monkeypatch)
    tensors = arguments(1000)
    results = run_guarded("adam8_", tensors, WRITTEN, found_inf=torch.tensor(found), **SCALARS)
    if found:
        assert_same(results, [tensors[name] for name in WRITTEN])
    else:
        assert_matches(results, expected(tensors, **SCALARS), "exact")


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_zero_gradient_changes_no_bit_of_its_weight(monkeypatch, mode):
    serve_metal(monkeypatch, mode=mode)
    grad = torch.tensor([1.0, 0.0]).repeat(128)
    param, state = values(5, 256), zero_state(256)
    before = bits(param).clone()
    for step in range(1, 51):
        Launcher("adam8_", "metal")(param, grad, *state, **SCALARS | {"step": step, "weight_decay": 0.0})
    assert torch.equal(bits(param)[1::2], before[1::2])
    assert not torch.equal(bits(param)[::2], before[::2])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("strided_one", ["param", "grad", "exp_avg_codes", "exp_avg_sq_codes"])
def test_layouts(monkeypatch, layout, strided_one):
    serve_metal(monkeypatch)
    tensors = arguments(65, 33)
    tensors[strided_one] = strided(tensors[strided_one], layout)
    results = outcome(Launcher("adam8_", "metal"), tensors, WRITTEN, **SCALARS)
    assert_matches(results, expected(tensors, **SCALARS), "exact")


def test_lists_are_their_items(monkeypatch):
    serve_metal(monkeypatch)
    items = [arguments(*shape) for shape in [(5,), (3, 300), (0,)]]
    lists = [[item[name].clone() for item in items] for name in items[0]]
    numbers = {"step": [7, 2, 7], "stream": [4, 5, 6], "offset": [0, 8, 0]}
    Launcher("adam8_foreach_", "metal")(*lists, **SCALARS | with_tensors(numbers), found_inf=[None] * 3)
    for i, item in enumerate(items):
        results = [column[i] for name, column in zip(item, lists, strict=True) if name != "grad"]
        single = SCALARS | {name: column[i] for name, column in numbers.items()}
        assert_matches(results, expected(item, **single), "exact")


def test_scalars_on_the_host_travel_with_the_launch():
    numbers = (torch.tensor(0.01), None, 0.1)
    step = {"step": torch.tensor(7), "betas": (0.9, 0.0)}
    on_host = update_scalars(torch.device("mps"), *numbers, **step)
    exact = [1 / (1 - 0.9**7), 1.0, 0.01, 1 - 0.01 * 0.1, 0.0]
    assert isinstance(on_host, list) and on_host == pytest.approx(exact, rel=1e-7)
    on_device = update_scalars(torch.device("cpu"), *numbers, **step)
    assert isinstance(on_device, torch.Tensor) and on_device.tolist() == on_host
