"""Every operator on 8-bit blocks refuses what it cannot do in one clear sentence, before anything is written."""

import inspect

import pytest
import torch

import kpop_kernels
from python_ref import quantize as oracle
from tests.guards import bits

X = torch.ones(300)
AFFINE = oracle.quantize_int8(X)._asdict()
DYNAMIC = oracle.quantize_dynamic8(X)._asdict()
SQUARES = {f"exp_avg_sq_{name}": tensor for name, tensor in DYNAMIC.items()}
MOMENTS = {f"exp_avg_{name}": tensor for name, tensor in AFFINE.items()} | SQUARES
RANDOM = {"seed": 1, "step": 2, "stream": 3}
ADAM = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.0}

CALLS = {
    "quantize_int8": ({"x": X}, RANDOM),
    "dequantize_int8": (AFFINE, {}),
    "quantize_dynamic8": ({"x": X}, {}),
    "dequantize_dynamic8": (DYNAMIC, {}),
    "ema_int8_": (AFFINE | {"x": X}, RANDOM | {"beta": 0.9}),
    "ema_sq_dynamic8_": (DYNAMIC | {"x": X}, {"beta": 0.9}),
    "adam8_": ({"param": X, "grad": X} | MOMENTS, RANDOM | ADAM),
    "stochastic_round_bf16": ({"x": X}, RANDOM),
}
"""Tensors and options of a call that is right."""

IN_BLOCKS = [op for op in CALLS if op != "stochastic_round_bf16"]
WITH_OUT = [op for op in CALLS if op != "adam8_"]
TENSORS = [(op, name) for op, (tensors, _) in CALLS.items() for name in tensors]


def refused(op, tensors=(), **options):
    """Call with some arguments changed; return the sentence of the refusal once no argument has changed."""
    arguments = {name: tensor.clone() for name, tensor in CALLS[op][0].items()} | dict(tensors)
    before = {name: tensor.detach().clone() for name, tensor in arguments.items()}
    with pytest.raises((TypeError, ValueError)) as raised:
        getattr(kpop_kernels, op)(*arguments.values(), **CALLS[op][1] | options)
    for name, tensor in arguments.items():
        assert tensor.is_meta or torch.equal(bits(tensor.detach()), bits(before[name])), name
    sentence = str(raised.value)
    assert sentence.startswith(f"{op}: ") and "\n" not in sentence
    return sentence


def outputs(op):
    result = getattr(kpop_kernels, op)(*(tensor.clone() for tensor in CALLS[op][0].values()), **CALLS[op][1])
    return tuple(result) if isinstance(result, tuple) else (result,)


def as_out(tensors):
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


@pytest.mark.parametrize("op", CALLS)
def test_the_call_is_right_as_it_stands(op):
    assert outputs(op)


@pytest.mark.parametrize("block_size", [0, -1, -8, 2**64, 2**63, 100, 4, 4104, 64.0, None, "256"])
@pytest.mark.parametrize("op", IN_BLOCKS)
def test_a_block_size_is_a_multiple_of_8_up_to_4096(op, block_size):
    sentence = refused(op, block_size=block_size)
    assert f"block_size is {block_size!r}, it must be a multiple of 8 from 8 to 4096" in sentence


@pytest.mark.parametrize(("op", "name"), TENSORS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool], ids=str)
def test_a_wrong_dtype(op, name, dtype):
    sentence = refused(op, {name: CALLS[op][0][name].to(dtype)})
    assert f"{name} is {dtype}, it must be " in sentence


@pytest.mark.parametrize(("op", "name"), TENSORS)
def test_a_wrong_device(op, name):
    tensors = CALLS[op][0]
    if len(tensors) == 1:
        sentence = refused(op, out=as_out([tensor.to("meta") for tensor in outputs(op)]))
        assert " on meta, it must be " in sentence and " on cpu" in sentence
    else:
        sentence = refused(op, {name: tensors[name].to("meta")})
        assert "is on cpu, it must be on meta" in sentence or "is on meta, it must be on cpu" in sentence


@pytest.mark.parametrize(
    ("op", "name"), [(op, name) for op, name in TENSORS if CALLS[op][0][name].is_floating_point()]
)
def test_a_tensor_that_requires_grad(op, name):
    assert f"{name} requires grad" in refused(op, {name: CALLS[op][0][name].clone().requires_grad_()})


@pytest.mark.parametrize(("op", "name"), [(op, name) for op, name in TENSORS if len(CALLS[op][0]) > 1])
def test_a_wrong_shape(op, name):
    sentence = refused(op, {name: torch.cat([CALLS[op][0][name]] * 2)})
    assert " has shape " in sentence and ", it must be " in sentence


@pytest.mark.parametrize("op", WITH_OUT)
def test_an_output_of_the_wrong_shape_or_dtype(op):
    right = outputs(op)
    for i, tensor in enumerate(right):
        for wrong in (torch.cat([tensor, tensor]), tensor.to(torch.float64), tensor[None]):
            given = [wrong if i == j else other for j, other in enumerate(right)]
            sentence = refused(op, out=as_out(given))
            assert f"on cpu, it must be {tuple(tensor.shape)} {tensor.dtype} on cpu" in sentence


@pytest.mark.parametrize("op", WITH_OUT)
def test_an_output_that_shares_memory_with_an_input(op):
    right = outputs(op)
    for i, like in enumerate(right):
        name, tensor = next(iter(CALLS[op][0].items()))
        memory = torch.zeros(2048, dtype=torch.uint8)
        shared = {
            name: memory[: tensor.nbytes].view(tensor.dtype).copy_(tensor),
        }
        given = list(right)
        given[i] = memory[: like.nbytes].view(like.dtype)
        assert " and shares memory with " in refused(op, shared, out=as_out(given))


@pytest.mark.parametrize("op", CALLS)
def test_options_are_named(op):
    """Peers that pass options by position break, or do nothing, when one is inserted."""
    for suffix in ("", "_foreach"):
        stem = op.removesuffix("_")
        function = getattr(kpop_kernels, f"{stem}{suffix}{op[len(stem) :]}")
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
        tensors = len(CALLS[op][0])
        assert kinds[:tensors] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * tensors
        assert set(kinds[tensors:]) == {inspect.Parameter.KEYWORD_ONLY}
