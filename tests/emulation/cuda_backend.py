"""The CUDA backend on the CPU: its launchers, bindings and launch code as they are, its kernels emulated.

    with emulated() as cuda:
        codes, scales, zero_points = operator("quantize_int8")(x)
    assert cuda.launches() == ["kpop::quantize_int8<true>"]

The sources of ``csrc/cuda`` are compiled for the host into one library, the package's bindings into a Python
module over it. Sources may be edited first, to plant a bug. Objects are kept under ``.cache/emulation``, each by
its preprocessed text, so that an edit compiles what it changes.
"""

import functools
import hashlib
import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pybind11
import torch

from kpop_kernels._schema import OPERATORS
from kpop_kernels.backends import complete
from kpop_kernels.backends.cuda import implementations, native
from tests.emulation import address_sanitizer
from tests.emulation.cuda_emulator import (
    CACHE,
    CSRC,
    FLAGS,
    HEADERS,
    ORDERS,
    compiler_version,
    find_compiler,
    run_compiler,
)
from tests.guards import Guarded
from tests.poison import fill_poison

Edits = Mapping[str, tuple[tuple[str, str], ...]]

# Builds lie side by side in one process, each with its own state; kernels are known by their exported names.
_KERNEL_FLAGS = (*(flag for flag in FLAGS if flag != "-fvisibility=hidden"), "-fno-gnu-unique")
_BINDING_FLAGS = ("-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-DKPOP_WITH_CUDA")
_SANITIZER = ("-fsanitize=address",) if address_sanitizer.loaded() else ()


class EmulatedCuda:
    """Stands in for the compiled kernels: one build of the sources, and how it orders threads and blocks."""

    def __init__(self, module: ModuleType, order: str, seed: int) -> None:
        self._module = module
        module.set_order(ORDERS.index(order), seed)
        module.take_launches()

    def __call__(self, device: torch.device) -> Any:
        """Give a launcher the kernels; what the package asks for on a GPU's stream."""
        assert device.type == "cpu"
        return nullcontext(self._module.Cuda(0))

    def launches(self) -> list[str]:
        """Return the names of the kernels that ran since the last call."""
        return self._module.take_launches()


@contextmanager
def emulated(
    order: str = "forward", seed: int = 0, edits: Edits | None = None, only: str | None = None
) -> Iterator[EmulatedCuda]:
    """Let the launchers of the CUDA backend run on emulated kernels.

    Args:
        order: The order of threads between collectives and of blocks: forward, reversed or shuffled.
        seed: Picks the shuffles.
        edits: Replacements by file name under ``csrc/cuda``; each text must be there exactly once.
        only: The one ``.cu`` file to compile, for a quick build; to call kernels of another ends the process.

    Yields:
        The emulation, which knows what ran.
    """
    kernels = EmulatedCuda(_module(tuple((edits or {}).items()), only), order, seed)
    with native.run_by(kernels):
        yield kernels


def operator(name: str) -> Callable[..., Any]:
    """Return an operator of the CUDA backend behind the package's checks, on lists too."""
    return OPERATORS[name].guarded(complete(implementations())[name])


def run(name: str, *tensors: torch.Tensor, **scalars: Any) -> tuple[torch.Tensor, ...]:
    """Run an operator with all its tensors between guard bands, and return its results or what it wrote."""
    op = OPERATORS[name]
    copies = dict(zip(op.parameters, map(Guarded, tensors), strict=False))
    results = op.results(*tensors, **scalars) if op.results else ()
    outputs = [Guarded(fill_poison(torch.empty(result.shape, dtype=result.dtype))) for result in results]
    if outputs:
        scalars["out"] = (
            outputs[0].tensor if len(outputs) == 1 else tuple(output.tensor for output in outputs)
        )
    operator(name)(*(copy.tensor for copy in copies.values()), **scalars)
    for parameter, copy in copies.items():
        copy.assert_intact(parameter) if parameter in op.written else copy.assert_unchanged(parameter)
    for output in outputs:
        output.assert_intact("out")
    written = [copy for parameter, copy in copies.items() if parameter in op.written]
    return tuple(guarded.tensor for guarded in (*written, *outputs))


@functools.cache
def _module(edits: tuple[tuple[str, tuple[tuple[str, str], ...]], ...], only: str | None) -> ModuleType:
    """Build the sources after edits and import the module; objects that an edit leaves alone are found."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        sources = Path(folder) / "csrc"
        shutil.copytree(CSRC, sources)
        for name, replacements in edits:
            _edit(sources / "cuda" / name, replacements)
        kernels = [*sorted((sources / "cuda").glob(only or "*.cu")), HEADERS / "emulated_runtime.cpp"]
        bindings = [HEADERS / "native_module.cpp", *sorted((sources / "bindings").glob("cuda_*.cpp"))]
        python = (f"-I{sysconfig.get_path('include')}", f"-I{pybind11.get_include()}")
        library = _link([_object(path, sources, (*_KERNEL_FLAGS, *_SANITIZER)) for path in kernels])
        objects = [_object(path, sources, (*_BINDING_FLAGS, *python)) for path in bindings]
    return _import(_link([*objects, library]))


def _edit(path: Path, replacements: tuple[tuple[str, str], ...]) -> None:
    text = path.read_text()
    for old, new in replacements:
        if text.count(old) != 1:
            # No AssertionError: that is what a test that plants a bug waits for.
            raise ValueError(f"{old!r} occurs {text.count(old)} times in {path.name}")
        text = text.replace(old, new)
    path.write_text(text)


def _object(source: Path, sources: Path, flags: tuple[str, ...]) -> Path:
    """Compile a source unless there is an object of the same preprocessed text."""
    includes = (f"-I{HEADERS}", f"-I{HEADERS / 'include'}", f"-I{sources}")
    command = [find_compiler(), *flags, *includes, "-x", "c++", str(source)]
    text = run_compiler([*command, "-E", "-P"])
    compiled = CACHE / f"{_key(text, *flags)}.o"
    if not compiled.exists():
        _replace(compiled, lambda path: run_compiler([*command, "-c", "-o", path]))
    return compiled


def _link(parts: Sequence[Path]) -> Path:
    library = CACHE / f"{_key(*(path.name for path in parts))}.so"
    if not library.exists():
        command = [find_compiler(), "-shared", "-Wl,-z,lazy", *_SANITIZER, *map(str, parts)]
        _replace(library, lambda path: run_compiler([*command, "-o", path]))
    return library


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join((compiler_version(), *parts)).encode()).hexdigest()[:32]


def _replace(target: Path, write: Callable[[str], object]) -> None:
    """Write a file under another name first: two processes may build at once."""
    temporary = target.with_suffix(f".{os.getpid()}{target.suffix}")
    write(str(temporary))
    temporary.replace(target)


def _import(library: Path) -> ModuleType:
    """Import an extension module under a name of its own, its functions to be found when they are called."""
    spec = importlib.util.spec_from_file_location(f"{library.stem}.emulated_native", library)
    assert spec is not None and spec.loader is not None
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_LAZY)
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.setdlopenflags(flags)
    return module
