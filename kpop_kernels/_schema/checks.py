"""The vocabulary of argument checks: each raises one sentence that says what was wrong and what is right."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import Parameter

FLOATING = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
CPU = torch.device("cpu")
INTEGERS = (int, torch.SymInt)
PLAIN = (Tensor, Parameter)
"""Types of tensors whose storage is what they say."""


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype that a tensor is computed in: float64 for float64, float32 for all others."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def scalar(value: float | Tensor) -> Tensor:
    """Return a number as a 0-d tensor."""
    if isinstance(value, Tensor):
        return value
    dtype = torch.int64 if isinstance(value, int) else torch.float64
    if torch.compiler.is_compiling():
        # A changing number that is added to a tensor stays an input of the compiled graph, where it would be
        # compiled anew for each value of torch.scalar_tensor(number).
        return torch.zeros((), dtype=dtype, device="cpu") + value
    return torch.scalar_tensor(value, dtype=dtype, device="cpu")


def require_floating(op: str, **tensors: Tensor | None) -> None:
    """Require real floating-point dtypes."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype not in FLOATING:
            raise TypeError(
                f"{op}: {name} is {tensor.dtype}, it must be float32, bfloat16, float16 or float64"
            )


def require_dtype(op: str, dtype: torch.dtype, why: str, **tensors: Tensor | None) -> None:
    """Require one dtype; ``why`` ends the sentence."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype != dtype:
            raise TypeError(f"{op}: {name} is {tensor.dtype}, it must be {dtype} {why}")


def require_dtype_among(op: str, allowed: Sequence[torch.dtype], **tensors: Tensor | None) -> None:
    """Require one of a few dtypes."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype not in allowed:
            words = [str(dtype).removeprefix("torch.") for dtype in allowed]
            choice = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
            raise TypeError(f"{op}: {name} is {tensor.dtype}, it must be {choice}")


def require_matrix(op: str, **tensors: Tensor | None) -> None:
    """Require at least two dimensions."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.ndim < 2:
            raise ValueError(f"{op}: {name} has shape {tuple(tensor.shape)}, it must be (..., rows, columns)")


def require_square(op: str, **tensors: Tensor) -> None:
    """Require (..., n, n)."""
    require_matrix(op, **tensors)
    for name, tensor in tensors.items():
        if tensor.shape[-2] != tensor.shape[-1]:
            raise ValueError(f"{op}: {name} has shape {tuple(tensor.shape)}, it must be (..., n, n)")


def require_equal_lengths(op: str, first: str, count: int, **lists: Sequence[Tensor]) -> None:
    """Require lists as long as the first one."""
    for name, tensors in lists.items():
        if len(tensors) != count:
            raise ValueError(f"{op}: {name} has {len(tensors)} tensors, it must have {count} like {first}")


def require_shape(op: str, shape: tuple[int, ...], why: str, **tensors: Tensor | None) -> None:
    """Require one shape; ``why`` ends the sentence."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{op}: {name} has shape {tuple(tensor.shape)}, it must be {tuple(shape)} {why}")


def require_device(op: str, device: torch.device, **tensors: Tensor | None) -> None:
    """Require one device; 0-d tensors may also live on the CPU, as torch allows it everywhere."""
    for name, tensor in tensors.items():
        if tensor is None or tensor.device == device or (tensor.ndim == 0 and tensor.device == CPU):
            continue
        raise ValueError(f"{op}: {name} is on {tensor.device}, it must be on {device} like the other tensors")


def require_scalar(op: str, **tensors: Tensor | None) -> None:
    """Require 0-d tensors."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.ndim != 0:
            raise ValueError(
                f"{op}: {name} has shape {tuple(tensor.shape)}, it must be a number or a 0-d tensor"
            )


def require_count(op: str, **tensors: Tensor) -> None:
    """Require 0-d tensors of at least 1, where a value can be read without waiting for a device."""
    for name, tensor in tensors.items():
        readable = tensor.device == CPU and not isinstance(tensor, FakeTensor)
        if readable and not tensor.item() >= 1:
            raise ValueError(f"{op}: {name} is {tensor.item():g}, it must be at least 1")


def require_fraction(op: str, **values: float) -> None:
    """Require 0 <= value < 1."""
    for name, value in values.items():
        if not 0.0 <= value < 1.0:
            raise ValueError(f"{op}: {name} is {value}, it must be at least 0 and below 1")


def require_integer(op: str, lowest: int, highest: int, **values: int) -> None:
    """Require an integer between two bounds, both allowed."""
    for name, value in values.items():
        if not isinstance(value, INTEGERS) or not lowest <= value <= highest:
            raise ValueError(f"{op}: {name} is {value!r}, it must be an integer from {lowest} to {highest}")


def require_not_negative(op: str, **values: float) -> None:
    """Require value >= 0."""
    for name, value in values.items():
        if not value >= 0.0:
            raise ValueError(f"{op}: {name} is {value}, it must not be negative")


def require_choice(op: str, name: str, value: object, allowed: Iterable[object]) -> None:
    """Require one of a few values."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ValueError(f"{op}: {name} is {value!r}, it must be one of {', '.join(map(repr, allowed))}")


def own_their_memory(written: Sequence[Tensor], read: Sequence[Tensor]) -> bool:
    """Tell at once that nothing stands against writing tensors while others are read; False if that is not known.

    True where none wants a gradient and each that is written, none of them expanded, has a storage of its own.
    """
    if not all(type(tensor) in PLAIN for tensors in (written, read) for tensor in tensors):
        return False
    storages = {
        tensor.untyped_storage().data_ptr()
        for tensor in written
        if tensor.is_contiguous() or not _is_expanded(tensor)
    }
    if len(storages) != len(written):
        return False
    if not storages.isdisjoint([tensor.untyped_storage().data_ptr() for tensor in read]):
        return False
    return not torch.is_grad_enabled() or not any(
        tensor.requires_grad for tensors in (written, read) for tensor in tensors
    )


def refuse_autograd(op: str, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that require grad in grad mode: no operator here is differentiable."""
    if not torch.is_grad_enabled():
        return
    for name, tensor in tensors.items():
        if tensor.requires_grad:
            raise ValueError(
                f"{op}: {name} requires grad, but this operator has no derivative; "
                "call it under torch.no_grad() or detach the tensor"
            )


def refuse_overlap(op: str, tensors: Mapping[str, Tensor], written: Collection[str]) -> None:
    """Refuse written tensors that overlap themselves (expanded) or any other argument."""
    for name in written:
        tensor = tensors[name]
        if not tensor.is_contiguous() and _is_expanded(tensor):
            raise ValueError(
                f"{op}: {name} is expanded, several of its elements share memory; clone it first"
            )
    order = {name: position for position, name in enumerate(tensors)}
    for names in _by_storage(tensors).values():
        if len(names) == 1 or not any(name in written for name in names):
            continue
        spans = sorted((*_span(tensors[name]), name) for name in names)
        for i, (_, end, name) in enumerate(spans):
            for begin, _, other in spans[i + 1 :]:
                if begin >= end:
                    break
                first, second = sorted((name, other), key=lambda each: (each not in written, order[each]))
                if first in written and _overlap(tensors[first], tensors[second]):
                    raise ValueError(
                        f"{op}: {first} is written and shares memory with {second}; clone one of them"
                    )


def _is_expanded(tensor: Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _by_storage(tensors: Mapping[str, Tensor]) -> dict[int, list[str]]:
    """Return the names of the tensors in each storage, without those that have no memory."""
    storages: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, FakeTensor) and tensor.device.type != "meta" and tensor.numel():
            storages.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
    return storages


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the addresses from a tensor's first element to the end of its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.element_size()


def _overlap(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors of one device have a byte in common; views that interleave have none."""
    # An element of a lies Σ iₖsₖ bytes after a's first, one of b Σ jₖtₖ bytes after b's first. Dimensions of
    # equal stride are taken together: only the difference of their indices counts.
    spans: dict[int, tuple[int, int]] = {}
    for tensor, sign in ((a, 1), (b, -1)):
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            low, high = spans.get(stride * tensor.element_size(), (0, 0))
            change = sign * (size - 1)
            spans[stride * tensor.element_size()] = (low + min(change, 0), high + max(change, 0))
    spans.pop(0, None)
    distance = b.data_ptr() - a.data_ptr()
    steps = sorted(((stride, *span) for stride, span in spans.items()), reverse=True)
    return _reaches(distance - a.element_size() + 1, distance + b.element_size() - 1, steps)


def _reaches(low: int, high: int, steps: Sequence[tuple[int, int, int]]) -> bool:
    """Tell whether low ≤ Σ k·stride ≤ high for some k within the bounds of each (stride, least k, most k).

    Strides descend, so that for views of one buffer hardly more than one k is possible at each level.
    """
    if not steps:
        return low <= 0 <= high
    (stride, least, most), *rest = steps
    rest_low = sum(s * k for s, k, _ in rest)
    rest_high = sum(s * k for s, _, k in rest)
    first = max(least, -((rest_high - low) // stride))
    last = min(most, (high - rest_low) // stride)
    return any(_reaches(low - k * stride, high - k * stride, rest) for k in range(first, last + 1))
