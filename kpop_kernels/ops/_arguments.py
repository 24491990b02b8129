"""Arguments in the form that torch's dispatcher takes."""

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

from .._schema.checks import require_integer, scalar

P = ParamSpec("P")
R = TypeVar("R")


def random_arguments(op: str, *, seed: int, step: int | Tensor, stream: int, offset: int) -> dict[str, Any]:
    """Return checked arguments: the seed as a signed 64-bit integer, the step as a tensor."""
    require_integer(op, 0, 2**32 - 1, stream=stream)
    require_integer(op, 0, 2**63 - 1, offset=offset)
    return {"seed": _signed(op, seed), "step": _step(op, step), "stream": stream, "offset": offset}


def random_arguments_foreach(
    op: str,
    count: int,
    *,
    seed: int,
    step: int | Tensor | Sequence[int | Tensor],
    stream: int | Sequence[int],
    offset: int | Sequence[int],
) -> dict[str, Any]:
    """Return the arguments for a list of items: a base stream counts up, one step or offset is shared."""
    steps = [_step(op, t) for t in step] if isinstance(step, Sequence) else [_step(op, step)] * count
    streams = [stream + i for i in range(count)] if isinstance(stream, int) else list(stream)
    offsets = [offset] * count if isinstance(offset, int) else list(offset)
    for item_stream, item_offset in zip(streams, offsets, strict=False):
        require_integer(op, 0, 2**32 - 1, stream=item_stream)
        require_integer(op, 0, 2**63 - 1, offset=item_offset)
    return {"seed": _signed(op, seed), "step": steps, "stream": streams, "offset": offsets}


def each(value: Any, count: int) -> list[Any]:
    """Return one entry an item: those of a sequence, or the same one for all."""
    return list(value) if isinstance(value, list | tuple) else [value] * count


def output_arguments(op: str, out: Sequence[Tensor], count: int) -> dict[str, Tensor]:
    """Return several outputs by the names that they have in the ``out`` overload."""
    if len(out) != count:
        raise ValueError(f"{op}: out has {len(out)} tensors, it must have {count}")
    return {f"out{i}": tensor for i, tensor in enumerate(out)}


def _signed(op: str, seed: int) -> int:
    """Return a seed of 64 bits as the dispatcher takes it."""
    require_integer(op, 0, 2**64 - 1, seed=seed)
    return seed - 2**64 if seed >= 2**63 else seed


def _step(op: str, step: int | Tensor) -> Tensor:
    if not isinstance(step, Tensor):
        require_integer(op, 0, 2**32 - 1, step=step)
    return scalar(step)


def constant_when_compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function whose result a compiled graph takes as a constant.

    This is torch.compiler.assume_constant_result without the import of the compiler, which takes longer than that
    of this package.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
