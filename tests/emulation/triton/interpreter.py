"""Runs launches in Triton's interpreter, and refuses what the interpreter gets silently wrong.

    with interpreter() as launches:
        quantize_int8(x, out=(codes, scales, zero_points))
    assert launches == ["quantize_int8_kernel"]

The interpreter is put behind the launch seam, and Triton is patched inside the ``with`` statement only: the
same process can compile the same kernels before and after.

The interpreter holds bfloat16 as the integers of its bits. It computes with those integers, and it truncates
where hardware rounds; both raise `SilentlyWrong` here. It widens subnormal bfloat16 wrongly; here that is
exact. A ``tl.dot`` of bfloat16 is widened first, which changes nothing: hardware accumulates in float32. An
access outside the tensors of the launch raises `OutOfBounds` before it happens.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import triton.language as tl
from torch import Tensor
from triton.language import core as core  # `_patch_lang` patches the modules that it finds among the globals
from triton.runtime import interpreter as triton_interpreter
from triton.runtime.jit import JITFunction

from kpop_kernels.backends.triton.launch import Launch, run_by


class SilentlyWrong(AssertionError):
    """The interpreter would go on with wrong numbers."""


class OutOfBounds(AssertionError):
    """An access that is not masked lies outside of every tensor of the launch."""


@contextmanager
def interpreter() -> Iterator[list[str]]:
    """Interpret every launch; yields the names of the kernels launched so far."""
    launches: list[str] = []

    def run(launch: Launch) -> None:
        launches.append(launch.kernel.__name__)
        _interpret(launch)

    # Arithmetic on NaN is silent on a device.
    with _patched_language(), run_by(run), np.errstate(all="ignore"):
        yield launches


@contextmanager
def last_programs(count: int) -> Iterator[None]:
    """Interpret only the last programs of every launch inside `interpreter`; grids have one axis."""
    builder = triton_interpreter.interpreter_builder
    program_id = builder.create_get_program_id

    def run(launch: Launch) -> None:
        first = launch.grid[0] - count
        shifted = lambda axis: triton_interpreter.TensorHandle(program_id(axis).data + first, tl.int32)
        with patch.object(builder, "create_get_program_id", shifted):
            _interpret(replace(launch, grid=(count,)))

    with run_by(run):
        yield


def _interpret(launch: Launch) -> None:
    kernel = triton_interpreter.InterpretedFunction(launch.kernel.fn)
    with _bounded(launch):
        kernel[launch.grid](*launch.arguments, **launch.constants)


@contextmanager
def _patched_language() -> Iterator[None]:
    """Let functions that are decorated for the compiler be called, and guard the interpreter's arithmetic."""
    builder = triton_interpreter.interpreter_builder
    with ExitStack() as stack:
        stack.callback(triton_interpreter._patch_lang(_call_interpreted).restore)
        stack.enter_context(patch.object(JITFunction, "__call__", _call_interpreted))
        convert = _with_their_type(triton_interpreter._implicit_cvt)
        stack.enter_context(patch.object(triton_interpreter, "_implicit_cvt", convert))
        for name, guard in _GUARDS.items():
            stack.enter_context(patch.object(builder, name, guard(getattr(builder, name))))
        yield


@contextmanager
def _bounded(launch: Launch) -> Iterator[None]:
    """Check the addresses of every access against the tensors of a launch."""
    builder = triton_interpreter.interpreter_builder
    arguments = [argument for argument in launch.arguments if isinstance(argument, Tensor)]
    tensors = [_extent(tensor) for tensor in (*arguments, *launch.reached)]

    def check(pointers: Any, mask: Any) -> None:
        accessed = np.broadcast_to(mask.data, pointers.data.shape).astype(bool)
        first = pointers.data[accessed].astype(np.int64)
        end = first + pointers.get_element_ty().primitive_bitwidth // 8
        inside = np.zeros(first.shape, bool)
        for start, stop in tensors:
            inside |= (start <= first) & (end <= stop)
        if not inside.all():
            raise OutOfBounds(f"{launch.kernel.__name__}: {(~inside).sum()} accesses outside of every tensor")

    def load(pointers: Any, mask: Any, *rest: Any) -> Any:
        check(pointers, mask)
        return masked_load(pointers, mask, *rest)

    def store(pointers: Any, values: Any, mask: Any, *rest: Any) -> Any:
        check(pointers, mask)
        return masked_store(pointers, values, mask, *rest)

    masked_load, masked_store = builder.create_masked_load, builder.create_masked_store
    with (
        patch.object(builder, "create_masked_load", load),
        patch.object(builder, "create_masked_store", store),
    ):
        yield


def _extent(tensor: Tensor) -> tuple[int, int]:
    """Return the addresses of a tensor's first byte and of the byte behind its last."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


def _call_interpreted(function: JITFunction, *args: Any, **kwargs: Any) -> Any:
    return _rewritten(function.fn)(*args, **kwargs)


@cache
def _rewritten(function: Callable[..., Any]) -> Callable[..., Any]:
    return triton_interpreter.InterpretedFunction(function).rewrite()


def _with_their_type(convert: Callable[..., Any]) -> Callable[..., Any]:
    def converted(argument: Any) -> Any:
        value = convert(argument)
        # Integers from 2³¹ on are int64 on a device; here they say so and are held in 32 bits without a sign.
        if isinstance(argument, int) and value.dtype == tl.int64:
            value.handle.data = value.handle.data.astype(np.int64)
        return value

    return converted


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, triton_interpreter.TensorHandle) and value.dtype.scalar == tl.bfloat16


def _refuse_bfloat16(method: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any) -> Any:
        if any(map(_is_bfloat16, args)):
            raise SilentlyWrong("bfloat16 is computed with: load it with load_as_float32")
        return method(*args)

    return guarded


def _guard_casts(method: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(source: Any, target: Any, *rest: Any) -> Any:
        if _is_bfloat16(source) and target.scalar == tl.float32:
            return _widened(source)
        # Zero is zero: it fills masked elements.
        if target.scalar == tl.bfloat16 and source.data.any():
            raise SilentlyWrong("a cast to bfloat16 truncates here: store with store_rounded")
        return method(source, target, *rest)

    return guarded


def _widen_operands(method: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(a: Any, b: Any, *rest: Any) -> Any:
        a, b = (_widened(x) if _is_bfloat16(x) else x for x in (a, b))
        return method(a, b, *rest)

    return guarded


def _widened(bfloat16: Any) -> Any:
    bits = bfloat16.data.astype(np.uint32) << 16
    return triton_interpreter.TensorHandle(bits.view(np.float32), tl.float32)


_GUARDS = {
    "binary_op": _refuse_bfloat16,
    "unary_op": _refuse_bfloat16,
    "create_fma": _refuse_bfloat16,
    "create_clampf": _refuse_bfloat16,
    "cast_impl": _guard_casts,
    "create_fp_to_fp": _guard_casts,
    "create_dot": _widen_operands,
}
