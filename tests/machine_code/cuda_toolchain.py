"""Compiles CUDA sources with nvcc and reads what came out, without a GPU."""

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.emulation.tools import ToolMissing
from tests.machine_code.sass import KernelCode, find_reader, read_cubin, read_ptx

CSRC = Path(__file__).parents[2] / "csrc" / "cuda"
TARGETS = ("sm_80", "sm_90", "sm_100")

_COMPILED_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_SPILLS = re.compile(
    r"Function properties for (\w+)\s+\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes"
)


def compile_cuda(source: Path, targets: Sequence[str] = TARGETS) -> dict[tuple[str, str], KernelCode]:
    """Compile a ``.cu`` file to an object for some targets and read every kernel in it.

    Args:
        source: The file; it may include the headers of ``csrc/cuda``.
        targets: Such as ``"sm_90"``.

    Returns:
        Kernels by their C++ name, such as ``"kpop::quantize_int8<true>"``, and target.

    Raises:
        ToolMissing: There is no nvcc, cuobjdump, nvdisasm or c++filt.
        RuntimeError: The source does not compile, or compiles with warnings; the message is the compiler's.
    """
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "compiled.o"
        spills = _spill_bytes(_compile(source, compiled, targets))
        # Each kind of image is extracted into the working directory, one file for each target.
        for option in ("-xelf", "-xptx"):
            _run([str(find_reader("cuobjdump")), option, "all", compiled.name], folder)
        kernels = {}
        for target in targets:
            (cubin,), (ptx,) = (list(Path(folder).glob(f"*.{target}.{kind}")) for kind in ("cubin", "ptx"))
            ptx_counts = read_ptx(ptx.read_text())
            for symbol, code in read_cubin(cubin).items():
                name = demangle(symbol)
                kernels[name, target] = replace(
                    code, name=name, ptx=ptx_counts[symbol], spill_bytes=spills[symbol, target]
                )
        return kernels


@functools.cache
def compiled(source: str) -> dict[tuple[str, str], KernelCode]:
    """Return `compile_cuda` of a source of the package, by its file name; compiled once in a process."""
    return compile_cuda(CSRC / source)


def available() -> bool:
    """Whether there is an nvcc."""
    return shutil.which("nvcc") is not None


def demangle(symbol: str) -> str:
    """Return the C++ name of a function without its parameters."""
    filter_ = shutil.which("c++filt")
    if filter_ is None:
        raise ToolMissing("names of kernels are read by c++filt, which comes with g++")
    return _run([filter_, "--no-params", symbol]).strip()


def _compile(source: Path, compiled: Path, targets: Sequence[str]) -> str:
    """Compile to an object that holds machine code and PTX for each target; return what ptxas said."""
    compiler = shutil.which("nvcc")
    if compiler is None:
        raise ToolMissing("CUDA sources are compiled by nvcc")
    numbers = [target.removeprefix("sm_") for target in targets]
    architectures = [f"--generate-code=arch=compute_{n},code=[sm_{n},compute_{n}]" for n in numbers]
    flags = [
        "-std=c++17",
        "-O3",
        "-Xptxas",
        "-v",
        "-Xcompiler",
        "-Wall",
        "-Werror",
        "all-warnings",
        f"-I{CSRC}",
    ]
    return _run([compiler, *flags, *architectures, "-c", str(source), "-o", str(compiled)])


def _run(command: Sequence[str], folder: str | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed:\n{done.stderr}{done.stdout}")
    return done.stderr + done.stdout


def _spill_bytes(log: str) -> dict[tuple[str, str], int]:
    """Read the bytes of spill stores and loads from what ptxas prints for each kernel and target."""
    spills = {}
    parts = _COMPILED_ENTRY.split(log)
    for symbol, target, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        spills[symbol, target] = sum(
            int(stores) + int(loads)
            for function, stores, loads in _SPILLS.findall(text)
            if function == symbol
        )
    return spills
