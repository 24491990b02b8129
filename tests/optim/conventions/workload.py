"""Small parameters, reproducible gradients and exact comparison, for the tests beside this file."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

SHAPES = ((6, 4), (5,), (3, 2, 2, 2), ())


def parameters(shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: torch.dtype = torch.float32):
    """Fresh parameters, equal at every call."""
    generator = torch.Generator().manual_seed(0)
    return [
        nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype))
        for shape in shapes
    ]


def gradient(param: Tensor, step: int, index: int = 0) -> Tensor:
    """The gradient of `param` at `step`: standard normal, a function of its arguments alone."""
    generator = torch.Generator().manual_seed(7919 * step + index)
    return torch.randn(param.shape, generator=generator, dtype=torch.float64).to(param.dtype)


def set_gradients(params: Iterable[nn.Parameter], step: int) -> None:
    """Give every parameter its gradient of `step`."""
    for index, param in enumerate(params):
        param.grad = gradient(param, step, index)


def train(optimizer: Optimizer, params: Sequence[nn.Parameter], steps: Iterable[int]) -> None:
    """Take one optimizer step for each number in `steps`, with that step's gradients."""
    for step in steps:
        set_gradients(params, step)
        optimizer.step()


def values(params: Iterable[Tensor]) -> list[Tensor]:
    """Copies of the values of `params`."""
    return [param.detach().clone() for param in params]


def snapshot(optimizer: Optimizer) -> tuple[list[Tensor], list[dict[str, Any]]]:
    """Copies of all parameters of `optimizer` and of their states, in group order."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    states = [copy.deepcopy(optimizer.state[p]) if p in optimizer.state else {} for p in params]
    return values(params), states


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors inside nested dicts and sequences."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor's elements in logical order: tells -0 from 0 and finds NaN equal to itself."""
    return tensor.detach().reshape(-1).contiguous().view(torch.uint8)


def difference(a: Any, b: Any, path: str = "value") -> str:
    """Where two nested structures first differ in type, dtype, shape or a single bit; "" if nowhere."""
    if type(a) is not type(b):
        return f"{path} has types {type(a).__name__} and {type(b).__name__}"
    if isinstance(a, Tensor):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"{path} is {a.dtype} {tuple(a.shape)} and {b.dtype} {tuple(b.shape)}"
        return "" if torch.equal(bits(a), bits(b)) else f"{path} differs by {(a - b).abs().max().item():.3g}"
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return f"{path} has keys {sorted(map(str, a))} and {sorted(map(str, b))}"
        return next(filter(None, (difference(a[k], b[k], f"{path}[{k!r}]") for k in a)), "")
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{path} has lengths {len(a)} and {len(b)}"
        pairs = enumerate(zip(a, b, strict=True))
        return next(filter(None, (difference(x, y, f"{path}[{i}]") for i, (x, y) in pairs)), "")
    return "" if a == b else f"{path} is {a!r} and {b!r}"


def identical(a: Any, b: Any) -> bool:
    """Whether two nested structures agree in types, dtypes, shapes and every bit."""
    return not difference(a, b)


def assert_identical(a: Any, b: Any) -> None:
    """Fail with the place of the first difference unless the structures are identical."""
    found = difference(a, b)
    assert not found, found


def trajectory(make: Callable[..., Optimizer], steps: int, **hyperparameters: Any):
    """What `steps` steps on fresh parameters lead to: the snapshot at the end."""
    params = parameters()
    optimizer = make(params, **hyperparameters)
    train(optimizer, params, range(steps))
    return snapshot(optimizer)
