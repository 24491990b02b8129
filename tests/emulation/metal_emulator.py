"""``torch.mps.compile_shader`` without a Mac: the same calls, run by the emulation in metal/ on CPU tensors.

``compile_shader(source).kernel_name(*args, threads=, group_size=, arg_casts=)`` follows torch's conventions.
The signature of the kernel is known, so what torch binds unchecked and the kernel would misread raises here.
"""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.emulation.metal_arguments import Binding, LaunchError, bind
from tests.emulation.metal_modes import MODES, Mode, replace_divisions
from tests.emulation.metal_translate import Kernel, TranslationError, translate

ORDERS = ("forward", "reversed", "shuffled")
THREADGROUP_MEMORY_LIMIT = 32768

_HEADERS = Path(__file__).parent / "metal"
_CACHE = Path(__file__).parents[2] / ".cache" / "emulation"
_COMPILERS = ("clang++-19", "clang++-20", "clang++-18", "clang++-17", "clang++")

# The warnings that are errors are rules of Apple's compiler that the host's does not share: no double, no
# silent rounding to half or bfloat, no C++17.
_FLAGS = (
    "-std=c++17 -O2 -fPIC -fvisibility=hidden -Wno-everything -Werror=implicit-float-conversion "
    "-Werror=double-promotion -Werror=c++98-c++11-c++14-compat "
    "-Xclang -ffloat16-excess-precision=none -Xclang -fbfloat16-excess-precision=none "
    "-fsanitize=shift,float-cast-overflow,array-bounds,integer-divide-by-zero,signed-integer-overflow "
    "-fsanitize-minimal-runtime"
).split()


class KernelFault(RuntimeError):
    """A kernel did what Metal does not define: a divergent barrier, an overflow, a write out of bounds."""


class _Dispatch(ctypes.Structure):
    _fields_ = (
        ("threads", ctypes.c_uint * 3),
        ("group", ctypes.c_uint * 3),
        ("order", ctypes.c_int),
        ("flush_subnormals", ctypes.c_int),
    )


@functools.cache
def find_compiler() -> str | None:
    """Return the path of a clang++ for the emulation, or None."""
    return next((path for name in _COMPILERS if (path := shutil.which(name))), None)


def compile_shader(source: str, *, mode: str = "exact", order: str = "forward") -> "ShaderLibrary":
    """Compile Metal source as ``torch.mps.compile_shader`` does, for this CPU.

    Args:
        source: Metal source text. It must be ASCII.
        mode: How arithmetic rounds, a key of ``MODES``.
        order: In which order threads run, one of ``ORDERS``.

    Returns:
        A library whose attributes are the kernels.

    Raises:
        SyntaxError: The source does not compile.
        ValueError: The mode or the order does not exist.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
    if not source.isascii():
        raise SyntaxError("the source is not ASCII; torch passes it on as ASCII")
    try:
        code, kernels = translate(source, "shader.metal")
    except TranslationError as error:
        raise SyntaxError(str(error)) from error
    library = ctypes.CDLL(str(_build(code, MODES[mode])))
    return ShaderLibrary(library, kernels, mode, order)


class ShaderLibrary:
    """The kernels of one source. ``launches`` lists the names of the kernels that ran, in order."""

    def __init__(self, library: ctypes.CDLL, kernels: list[Kernel], mode: str, order: str):
        self.mode, self.order = mode, order
        self.launches: list[str] = []
        self._library = library
        self._kernels = {kernel.host_name: kernel for kernel in kernels}

    def __getattr__(self, name: str) -> "ShaderKernel":
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._kernels:
            raise RuntimeError(f"the source has no kernel {name}; it has {', '.join(sorted(self._kernels))}")
        return ShaderKernel(self, self._kernels[name])

    def __dir__(self) -> list[str]:
        return sorted(self._kernels)


class ShaderKernel:
    """One kernel, called like the kernels of ``torch.mps.compile_shader``."""

    def __init__(self, library: ShaderLibrary, kernel: Kernel):
        self._owner, self._kernel = library, kernel
        self._launch = getattr(library._library, f"launch_{kernel.host_name}")
        self._fault = library._library.emulation_last_fault
        self._fault.restype = ctypes.c_char_p
        used = self.static_thread_group_memory_length
        if used > THREADGROUP_MEMORY_LIMIT:
            raise RuntimeError(f"{kernel.host_name} needs {used} bytes of threadgroup memory, 32768 exist")

    @property
    def max_threads_per_threadgroup(self) -> int:
        """Largest number of threads in a group."""
        return self._kernel.max_threads

    @property
    def thread_execution_width(self) -> int:
        """Lanes of a simdgroup."""
        return 32

    @property
    def static_thread_group_memory_length(self) -> int:
        """Bytes of the kernel's threadgroup variables."""
        return ctypes.c_ulong.in_dll(
            self._owner._library, f"threadgroup_bytes_{self._kernel.host_name}"
        ).value

    def __call__(
        self,
        *args: object,
        threads: int | Sequence[int] | None = None,
        group_size: int | Sequence[int] | None = None,
        arg_casts: str | dict[int, str] | None = None,
    ) -> None:
        """Run ``threads`` threads in all, by default one for each element of the first tensor."""
        bindings = bind(self._kernel, args, arg_casts)
        if threads is None:
            tensors = [argument for argument in args if isinstance(argument, torch.Tensor)]
            if not tensors:
                raise LaunchError("threads must be given when no argument is a tensor")
            threads = tensors[0].numel()
        self._run(bindings, *self._grid(threads, group_size))
        self._owner.launches.append(self._kernel.host_name)

    def _grid(
        self, threads: int | Sequence[int], group_size: int | Sequence[int] | None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        grid = (threads,) if isinstance(threads, int) else tuple(threads)
        limit = self.max_threads_per_threadgroup
        if group_size is None:
            group: tuple[int, ...] = (min(limit, grid[0]), *(1 for _ in grid[1:]))
        else:
            group = (group_size,) if isinstance(group_size, int) else tuple(group_size)
        if not 1 <= len(grid) <= 3 or len(group) != len(grid):
            raise LaunchError(f"threads {grid} and group_size {group} need the same rank, 1 to 3")
        if min(grid) < 1 or min(group) < 1 or max(grid) >= 2**32:
            raise LaunchError(f"threads {grid} and group_size {group} must be positive and below 2^32")
        size = 1
        for extent in group:
            size *= extent
        if size > limit:
            raise LaunchError(
                f"group_size {group} has {size} threads, {self._kernel.host_name} allows {limit}"
            )
        return grid, group

    def _run(self, bindings: list[Binding], grid: tuple[int, ...], group: tuple[int, ...]) -> None:
        addresses = (ctypes.c_void_p * len(bindings))(*(binding.address for binding in bindings))
        dispatch = _Dispatch(
            (*grid, *(1 for _ in range(3 - len(grid)))),
            (*group, *(1 for _ in range(3 - len(group)))),
            ORDERS.index(self._owner.order),
            MODES[self._owner.mode].flush_subnormals,
        )
        if self._launch(addresses, ctypes.byref(dispatch)) != 0:
            raise KernelFault(f"{self._kernel.host_name}: {self._fault().decode()}")


@functools.cache
def _toolchain() -> tuple[str, str]:
    """Return the compiler and a text that changes whenever the compiler or the headers do."""
    compiler = find_compiler()
    if compiler is None:
        raise RuntimeError(
            f"the Metal emulation needs clang++ 17 or newer; none of {', '.join(_COMPILERS)} is there"
        )
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout
    headers = [path.read_text() for path in sorted(_HEADERS.rglob("*")) if path.is_file()]
    return compiler, "\0".join([version, *headers])


def _build(code: str, mode: Mode) -> Path:
    compiler, identity = _toolchain()
    flags = [*_FLAGS, *mode.flags, "-isystem", str(_HEADERS / "include")]
    if os.uname().machine == "x86_64":
        flags += ["-mfma", "-mf16c"]
    if mode.division_ulp:
        flags.append(f"-DEMULATION_ULP={mode.division_ulp}")
    # The headers are part of the identity by their text; without their path the cache survives a move.
    key = "\0".join([identity, code, *flags[: flags.index("-isystem")], str(mode)])
    target = _CACHE / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.so"
    if target.exists():
        return target
    _CACHE.mkdir(parents=True, exist_ok=True)
    work = target.with_suffix(f".{os.getpid()}")
    work.mkdir()
    try:
        (work / "shader.cpp").write_text(code)
        if mode.division_ulp:
            _compile(
                compiler, [*flags, "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-S", "shader.cpp"], work
            )
            ir = work / "shader.ll"
            ir.write_text(replace_divisions(ir.read_text()))
            _compile(compiler, ["-O2", "-fPIC", "-shared", "shader.ll", "-o", "shader.so"], work)
        else:
            _compile(compiler, [*flags, "-shared", "shader.cpp", "-o", "shader.so"], work)
        # A rename is atomic: another process that builds the same source never sees half a file.
        (work / "shader.so").replace(target)
    finally:
        shutil.rmtree(work)
    return target


def _compile(compiler: str, arguments: list[str], directory: Path) -> None:
    done = subprocess.run([compiler, *arguments], cwd=directory, capture_output=True, text=True)
    if done.returncode != 0:
        raise SyntaxError(f"the Metal source does not compile:\n{done.stderr}")
