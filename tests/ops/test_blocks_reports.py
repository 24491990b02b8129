"""Defects reported of other packages' 8-bit state, for every operator on blocks, each named by what it shows."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
import torch.distributed.checkpoint as dcp

import kpop_kernels
from tests.ops.blocks import VARIANTS, assert_same, values
from tests.ops.launch import Launcher
from tests.ops.test_adam8 import arguments as adam_arguments
from tests.ops.test_blocks_contract import CALLS


@pytest.fixture
def default_bfloat16() -> Iterator[None]:
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("default_bfloat16")
@pytest.mark.parametrize("op", CALLS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_default_dtype_of_bfloat16_reaches_no_scale_and_no_value(variant, op):
    outcomes = []
    for dtype in (torch.float32, torch.bfloat16):
        torch.set_default_dtype(dtype)
        tensors, options = CALLS[op]
        arguments = [tensor.clone() for tensor in tensors.values()]
        results = Launcher(op, variant)(*arguments, **options)
        results = results if isinstance(results, tuple) else () if results is None else (results,)
        outcomes.append([*results, *arguments])
    assert_same(outcomes[1], outcomes[0])


@pytest.mark.filterwarnings("ignore:torch.distributed is")  # said whenever one process saves or loads
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_state_is_plain_tensors_that_every_checkpoint_keeps_bit_for_bit(dtype, tmp_path):
    """Subclasses of tensors lack the operators that sharded checkpoints ask for."""
    param, grad, *state = adam_arguments(3, 1001, dtype=dtype).values()
    kpop_kernels.adam8_(param, grad, *state, lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0,
                        step=1, seed=2, stream=3)  # fmt: skip
    kept = {str(i): tensor for i, tensor in enumerate(state)}
    assert {(type(tensor), tensor.dtype) for tensor in state} == {
        (torch.Tensor, torch.uint8),
        (torch.Tensor, torch.float32),
    }
    torch.save(kept, tmp_path / "state.pt")
    assert_same(torch.load(tmp_path / "state.pt", weights_only=True).values(), state)
    dcp.save(kept, checkpoint_id=tmp_path / "distributed")
    loaded = {name: torch.zeros_like(tensor) for name, tensor in kept.items()}
    dcp.load(loaded, checkpoint_id=tmp_path / "distributed")
    assert_same(loaded.values(), state)
    for tensors in (kept.values(), loaded.values()):
        torch.manual_seed(0)  # is not what rounding depends on
        kpop_kernels.adam8_(param, grad, *tensors, lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.0,
                            step=2, seed=2, stream=3)  # fmt: skip
    assert_same(loaded.values(), kept.values())


WITHOUT_BITSANDBYTES = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("bitsandbytes", "torchao"):
            raise AssertionError(name + " was imported")
sys.meta_path.insert(0, Absent())
import torch, kpop_kernels
from kpop_kernels.optim import QClean
parameter = torch.nn.Parameter(torch.ones(64, 80))
optimizer = QClean([parameter], lr=0.1, rank=8)
parameter.grad = torch.ones(64, 80)
optimizer.step()
assert not torch.equal(parameter, torch.ones(64, 80)), "nothing was updated"
assert any(name.endswith("codes") for name in optimizer.state[parameter])
"""


def test_8_bit_state_needs_no_other_package():
    subprocess.run([sys.executable, "-c", WITHOUT_BITSANDBYTES], check=True, timeout=300)


@pytest.mark.parametrize("op", ["quantize_int8", "stochastic_round_bf16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rounding_neither_reads_nor_moves_the_global_generator(variant, op):
    """Replicas and shards that share a global generator drift, and a compiled graph freezes its state."""
    runs, states = [], []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        results = Launcher(op, variant)(values(1, 1000), seed=3, step=4, stream=5)
        runs.append(results if isinstance(results, tuple) else (results,))
        states.append(torch.equal(before, torch.get_rng_state()))
    assert_same(runs[1], runs[0])
    assert states == [True, True]
