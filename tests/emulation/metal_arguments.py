"""How ``torch.mps.compile_shader`` binds Python arguments to buffers, and what a kernel makes of them.

Tensors bind by address with their storage offset, strides are ignored. An int or bool becomes eight bytes, a
float four, unless ``arg_casts`` says otherwise; a list is packed, its type follows from its first element.
"""

import re
import struct
from dataclasses import dataclass

import torch

from tests.emulation.metal_translate import Buffer, Kernel

MAX_BUFFERS = 31
MAX_PACKED_BYTES = 4096

_METAL_SCALARS = {
    **dict.fromkeys(("bool", "char", "uchar", "int8_t", "uint8_t"), ("int", 1)),
    **dict.fromkeys(("short", "ushort", "int16_t", "uint16_t"), ("int", 2)),
    **dict.fromkeys(("int", "uint", "int32_t", "uint32_t"), ("int", 4)),
    **dict.fromkeys(("long", "ulong", "int64_t", "uint64_t", "size_t"), ("int", 8)),
    "half": ("half", 2),
    "bfloat": ("bfloat", 2),
    "float": ("float", 4),
}
_TORCH_SCALARS = {
    torch.float32: ("float", 4),
    torch.float16: ("half", 2),
    torch.bfloat16: ("bfloat", 2),
    torch.bool: ("int", 1),
    torch.int8: ("int", 1),
    torch.uint8: ("int", 1),
    torch.int16: ("int", 2),
    torch.uint16: ("int", 2),
    torch.int32: ("int", 4),
    torch.uint32: ("int", 4),
    torch.int64: ("int", 8),
    torch.uint64: ("int", 8),
}
_CASTS = {
    "fp16": ("half", 2),
    "bf16": ("bfloat", 2),
    "int32": ("int", 4),
    "int16": ("int", 2),
    "int8": ("int", 1),
    "uint8": ("int", 1),
}


class LaunchError(RuntimeError):
    """The arguments, the grid or the group do not fit the kernel."""


@dataclass(frozen=True)
class Binding:
    """The address a buffer slot gets, and the object that keeps the memory alive."""

    address: int
    owner: object


@dataclass(frozen=True)
class _Element:
    kind: str
    bytes: int
    components: int

    @property
    def alignment(self) -> int:
        return self.bytes * (4 if self.components == 3 else self.components)


def bind(kernel: Kernel, args: tuple[object, ...], arg_casts: str | dict[int, str] | None) -> list[Binding]:
    """Bind positional arguments to the buffers 0, 1, 2, ... of a kernel.

    Raises:
        LaunchError: The number, the type, the size or the alignment of an argument does not fit the kernel.
    """
    if len(args) > MAX_BUFFERS:
        raise LaunchError(f"{len(args)} arguments for {MAX_BUFFERS} buffer slots")
    if len(args) != len(kernel.buffers):
        names = ", ".join(buffer.name for buffer in kernel.buffers)
        raise LaunchError(
            f"{kernel.host_name} reads {len(kernel.buffers)} buffers ({names}), {len(args)} are given"
        )
    casts = (
        {index: arg_casts for index in range(len(args))} if isinstance(arg_casts, str) else arg_casts or {}
    )
    return [
        _bind_one(
            f"argument {index} of {kernel.host_name}, {buffer.name},", buffer, argument, casts.get(index)
        )
        for index, (buffer, argument) in enumerate(zip(kernel.buffers, args, strict=True))
    ]


def _bind_one(what: str, buffer: Buffer, argument: object, cast: str | None) -> Binding:
    element = _element(buffer)
    if isinstance(argument, torch.Tensor):
        return _bind_tensor(what, buffer, element, argument)
    if isinstance(argument, list | tuple):
        values = list(argument)
    elif type(argument) in (bool, int, float):  # a numpy scalar may be a subclass, which torch rejects
        values = [argument]
    else:
        raise LaunchError(
            f"{what} is a {type(argument).__name__}; tensors, int, float, bool and lists are bound"
        )
    if not values or not isinstance(values[0], bool | int | float):
        raise LaunchError(f"{what} must be a list of at least one int or float")
    if buffer.space == "device":
        raise LaunchError(f"{what} is declared device, only a tensor can be bound to it")
    kind, size = ("float", 4) if isinstance(values[0], float) else ("int", 8)
    if cast is not None:
        if cast not in _CASTS:
            raise LaunchError(f"{what} is cast to {cast}; the casts are {', '.join(_CASTS)}")
        kind, size = _CASTS[cast]
    if (kind, size) != (element.kind, element.bytes):
        raise LaunchError(
            f"{what} is bound as {kind} of {size} bytes, "
            f"the kernel reads {buffer.element} ({element.bytes} bytes)"
        )
    if buffer.is_reference and len(values) < element.components:
        raise LaunchError(f"{what} has {len(values)} values, the kernel reads {buffer.element}")
    data = _pack(what, values, kind, size)
    if len(data) > MAX_PACKED_BYTES:
        raise LaunchError(f"{what} has {len(data)} bytes, inline arguments have at most {MAX_PACKED_BYTES}")
    return _bind_bytes(data)


def _bind_tensor(what: str, buffer: Buffer, element: _Element, tensor: torch.Tensor) -> Binding:
    if tensor.device.type != "cpu":
        raise LaunchError(f"{what} is on {tensor.device}, the emulation reads CPU tensors")
    if not tensor.is_contiguous():
        raise LaunchError(f"{what} is not contiguous and torch ignores strides: call .contiguous() first")
    if _TORCH_SCALARS.get(tensor.dtype) != (element.kind, element.bytes):
        raise LaunchError(f"{what} is {tensor.dtype}, the kernel reads {buffer.element}")
    if tensor.data_ptr() % element.alignment:
        raise LaunchError(f"{what} is not aligned to the {element.alignment} bytes of {buffer.element}")
    return Binding(tensor.data_ptr(), tensor)


def _element(buffer: Buffer) -> _Element:
    name = re.sub(r"^(?:metal::)?atomic_|^(?:metal::)?atomic<\s*|\s*>$|metal::", "", buffer.element)
    name, components = (
        (name[:-1], int(name[-1])) if name[-1:] in "234" and name[:-1] in _METAL_SCALARS else (name, 1)
    )
    if name not in _METAL_SCALARS:
        raise LaunchError(f"buffer {buffer.name} holds {buffer.element}; only scalars and vectors are bound")
    kind, size = _METAL_SCALARS[name]
    return _Element(kind, size, components)


def _pack(what: str, values: list[bool | int | float], kind: str, size: int) -> bytes:
    try:
        if kind == "int":
            return b"".join(
                int(value).to_bytes(size, "little", signed=size != 1 or min(values) < 0) for value in values
            )
        if kind == "bfloat":
            return torch.tensor(values, dtype=torch.bfloat16).view(torch.int16).numpy().tobytes()
        return struct.pack(f"<{len(values)}{'e' if kind == 'half' else 'f'}", *values)
    except OverflowError as error:
        raise LaunchError(f"{what} does not fit into {size} bytes: {values}") from error


def _bind_bytes(data: bytes) -> Binding:
    """Bind packed values. What follows them has every bit set: Metal leaves open what a read there gives."""
    padding = 256
    owner = torch.full((len(data) + padding,), 0xFF, dtype=torch.uint8)
    owner[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return Binding(owner.data_ptr(), owner)
