"""Compiles CUDA kernels for the host and runs them there, one fiber for each CUDA thread.

    module = cuda_emulator.compile(HEADERS / "execution_kernels.cuh", ["reverse_static<float>"])
    module["reverse_static<float>"](data, grid=1, block=64)

The source is the one nvcc compiles. What the emulation provides and what it checks is in
``tests/emulation/cuda``; a kernel's bug raises the subclass of ``KernelError`` that names it. Argument types
come from the compiler, which exports each instantiation's signature. A module is compiled once and kept under
``.cache/emulation``.

In a process that runs under AddressSanitizer (``address_sanitizer.py``) modules are compiled with it: it ends
the process at the first access outside an allocation.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulation import address_sanitizer
from tests.emulation.tools import ToolMissing

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"
HEADERS = Path(__file__).parent / "cuda"
CACHE = ROOT / ".cache" / "emulation"

ORDERS = ("forward", "reversed", "shuffled")

FLAGS = (
    "-std=c++17",
    "-O1",
    "-g1",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",  # a fused multiply-add is in the source, or it is not there
    "-fno-strict-aliasing",  # kernels reinterpret vectors
    "-fsanitize=alignment,bounds",  # answered by checks.h
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-error=unused-parameter",  # a mutation may leave a name without a use
    "-Wno-error=unused-variable",
    "-Wno-unknown-pragmas",  # #pragma unroll
)


class KernelError(RuntimeError):
    """A kernel did what no device would let pass unharmed."""


class DivergentBarrier(KernelError):
    """A barrier was not reached by all threads of the block."""


class MissingLanes(KernelError):
    """A warp collective was not reached by all lanes of its mask, or reads a lane outside of it."""


class MisalignedAccess(KernelError):
    """An access at an address that its type does not allow."""


class OutOfBounds(KernelError):
    """An access past the end of an array with a known size, of dynamic shared memory or of the stack."""


class BadLaunch(KernelError):
    """A grid or block shape that the hardware does not have."""


_FAULTS = {1: DivergentBarrier, 2: MissingLanes, 3: MisalignedAccess, 4: OutOfBounds, 5: BadLaunch}


class _LaunchShape(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_shared_bytes", ctypes.c_uint64),
        ("order", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
    )


class Kernel:
    """One instantiation of a kernel.

    Attributes:
        name: The instantiation as it was given to ``compile``.
        parameters: Types in order, such as ``("const float32*", "int8*", "int64")``.
    """

    def __init__(self, library: ctypes.PyDLL, index: int, name: str):
        self.name = name
        self._library = library
        self._launch = getattr(library, f"emulation_launch_{index}")
        signature = getattr(library, f"emulation_signature_{index}")
        signature.restype = ctypes.c_char_p
        self.parameters = tuple(p for p in signature().decode().split(",") if p)

    def __call__(
        self,
        *arguments: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared: int = 0,
        order: str = "forward",
        seed: int = 0,
    ) -> None:
        """Run the kernel.

        Args:
            *arguments: One for each parameter: numpy arrays or CPU tensors for pointers (``None`` for null),
                numbers for scalars, ``bytes`` for structures.
            grid: Blocks in x, y and z.
            block: Threads of a block in x, y and z.
            shared: Bytes of dynamic shared memory.
            order: The order of threads between collectives and of blocks: forward, reversed or shuffled.
            seed: Picks the shuffles.

        Raises:
            KernelError: The subclass says what the kernel did wrong.
            TypeError: An argument does not fit its parameter.
        """
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
        if len(arguments) != len(self.parameters):
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments, not {len(arguments)}")
        values = [self._pack(i, *pair) for i, pair in enumerate(zip(self.parameters, arguments, strict=True))]
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        shape = _LaunchShape(_dim3(grid), _dim3(block), shared, ORDERS.index(order), seed)
        fault = self._launch(addresses, ctypes.byref(shape))
        if fault:
            message = self._library.emulation_last_error().decode()
            raise _FAULTS[fault](f"{self.name}: {message}")

    def _pack(self, position: int, parameter: str, argument: Any) -> ctypes.Array:
        """Return a buffer that holds the argument as the kernel reads it."""
        try:
            if parameter.endswith("*"):
                data = np.uint64(_address(parameter, argument)).tobytes()
            elif parameter.startswith("struct"):
                data = _structure(int(parameter.removeprefix("struct")), argument)
            else:
                data = _scalar(np.dtype(parameter), argument)
        except TypeError as error:
            raise TypeError(f"argument {position} of {self.name}: {error}") from None
        return ctypes.create_string_buffer(data, len(data))


class Module:
    """The kernels of one source, by the names they were instantiated with."""

    def __init__(self, path: Path, instantiations: Sequence[str]):
        library = ctypes.PyDLL(str(path))  # keeps the interpreter lock: a module runs one launch at a time
        library.emulation_last_error.restype = ctypes.c_char_p
        self._kernels = {name: Kernel(library, i, name) for i, name in enumerate(instantiations)}

    def __getitem__(self, instantiation: str) -> Kernel:
        return self._kernels[instantiation]


def compile(source: Path | str, instantiations: Iterable[str]) -> Module:
    """Compile a CUDA source for the host.

    Args:
        source: The path of a ``.cuh`` file, or the text of one. Headers of ``csrc/cuda`` are found.
        instantiations: Kernels to export, such as ``"reverse_static<float>"``.

    Returns:
        The module with the kernels under these names.

    Raises:
        ToolMissing: There is no g++, or the machine is not x86-64.
        RuntimeError: The source does not compile; the message is the compiler's.
    """
    compiler = find_compiler()
    instantiations = list(instantiations)
    flags = [*FLAGS, *(["-fsanitize=address"] if address_sanitizer.loaded() else [])]
    text = _translation_unit(source, instantiations)
    key = hashlib.sha256()
    for part in (text, *flags, compiler_version(), _included_text()):
        key.update(part.encode() + b"\0")
    library = CACHE / f"{key.hexdigest()[:32]}.so"
    if not library.exists():
        _build(compiler, flags, text, library)
    return Module(library, instantiations)


def available() -> bool:
    """Whether ``compile`` has what it needs."""
    return shutil.which("g++") is not None and platform.machine() == "x86_64"


def find_compiler() -> str:
    """Return the path of g++ or raise ``ToolMissing``."""
    if platform.machine() != "x86_64":
        raise ToolMissing(f"the CUDA emulation switches fibers on x86-64, not on {platform.machine()}")
    compiler = shutil.which("g++")
    if compiler is None:
        raise ToolMissing("the CUDA emulation needs g++")
    return compiler


def _translation_unit(source: Path | str, instantiations: Sequence[str]) -> str:
    name, text = (source.name, source.read_text()) if isinstance(source, Path) else ("source.cuh", source)
    # g++ warns of "#pragma once" in a main file, which the source becomes here.
    body = f'#line 1 "{name}"\n' + text.replace("#pragma once\n", "\n")
    exports = "".join(f"EMULATION_EXPORT_KERNEL({i}, {name})\n" for i, name in enumerate(instantiations))
    return f'#include "launch.h"\n{body}\n#line 1 "instantiations"\n{exports}'


def _build(compiler: str, flags: Sequence[str], text: str, library: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    stem = library.with_suffix(f".{os.getpid()}")
    unit, compiled, linked = (stem.with_name(stem.name + suffix) for suffix in (".cpp", ".o", ".so"))
    includes = [f"-I{HEADERS}", f"-I{HEADERS / 'include'}", f"-I{CSRC / 'cuda'}"]
    linking = [flag for flag in flags if flag == "-fsanitize=address"]
    try:
        unit.write_text(text)
        run_compiler([compiler, *flags, *includes, "-c", str(unit), "-o", str(compiled)])
        run_compiler([compiler, "-shared", *linking, str(compiled), "-o", str(linked)])
        linked.replace(library)
    finally:
        for leftover in (unit, compiled, linked):
            leftover.unlink(missing_ok=True)


def run_compiler(command: Sequence[str]) -> str:
    """Run g++ and return what it printed; raise RuntimeError with its words if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"g++ failed:\n{done.stderr}")
    return done.stdout


@functools.cache
def compiler_version() -> str:
    """Return what g++ says it is."""
    return run_compiler([find_compiler(), "--version"])


def _included_text() -> str:
    """Everything a source may include, so that a change of any header recompiles."""
    folders = (HEADERS, CSRC / "cuda", CSRC / "common")
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in (".h", ".cuh"))
    return "\0".join(f"{path.relative_to(ROOT)}\0{path.read_text()}" for path in files)


def _dim3(shape: int | Sequence[int]) -> ctypes.Array:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return (ctypes.c_uint32 * 3)(*sizes, *(1,) * (3 - len(sizes)))


def _address(parameter: str, argument: Any) -> int:
    """Return where the data of an array or a CPU tensor begins, after a check of its element type."""
    if argument is None:
        return 0
    if isinstance(argument, np.ndarray):
        dtype, address = argument.dtype.name, argument.ctypes.data
    elif hasattr(argument, "data_ptr"):
        if argument.device.type != "cpu":
            raise TypeError(f"a tensor must be on the cpu, not on {argument.device}")
        dtype, address = str(argument.dtype).removeprefix("torch."), argument.data_ptr()
    else:
        raise TypeError(f"{parameter} takes an array, a tensor or None, not {type(argument).__name__}")
    expected = parameter.removeprefix("const ").removesuffix("*")
    # numpy has no bfloat16, so its bits come as uint16; pointers to void and structures take any array.
    accepted = {expected, "uint16"} if expected == "bfloat16" else {expected}
    if dtype not in accepted and expected != "void" and not expected.startswith("struct"):
        raise TypeError(f"{parameter} does not take elements of {dtype}")
    return address


def _scalar(dtype: np.dtype, argument: Any) -> bytes:
    if not isinstance(argument, (bool, int, float, np.generic)):
        raise TypeError(f"{dtype} takes a number, not {type(argument).__name__}")
    if dtype.kind in "iu" and not (
        float(argument).is_integer() and np.iinfo(dtype).min <= int(argument) <= np.iinfo(dtype).max
    ):
        raise TypeError(f"{dtype} does not hold {argument}")
    return dtype.type(argument).tobytes()


def _structure(size: int, argument: Any) -> bytes:
    data = argument.tobytes() if isinstance(argument, (np.ndarray, np.generic)) else argument
    if not isinstance(data, bytes) or len(data) != size:
        raise TypeError(f"a structure of {size} bytes takes bytes or an array of that size")
    return data
