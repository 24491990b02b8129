"""Compile csrc/ into kpop_kernels/_native: C++17, no torch headers, CUDA where nvcc is found."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CSRC = Path(__file__).parent.resolve() / "csrc"
CUDA_ARCHS = ("80", "90", "100")

# Flags of each instruction set that the CPU kernels are compiled for, one object each.
ISA_FLAGS = {"baseline": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    # What hardly a processor still runs may be slower and takes less of the wheel.
    ISA_FLAGS["baseline"] = ["-O2"]
    ISA_FLAGS["avx2"] = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"]
    ISA_FLAGS["avx512"] = [
        *ISA_FLAGS["avx2"],
        "-mavx512f",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx512vl",
        "-mprefer-vector-width=512",
    ]

# Bits are promised: no contraction of a*b+c, no reassociation. errno and traps are nobody's business here.
COMMON_FLAGS = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wall",
    "-Wextra",
]
# Files of csrc/cpu that are not compiled once for each instruction set.
ONCE = {"dispatch.cpp", "parallel.cpp"}


def find_nvcc() -> Path | None:
    """Return nvcc from CUDA_HOME or the PATH."""
    home = os.environ.get("CUDA_HOME")
    found = shutil.which("nvcc", path=str(Path(home) / "bin")) if home else shutil.which("nvcc")
    return Path(found) if found else None


def cuda_home(nvcc: Path) -> Path:
    """Return the toolkit's root as nvcc itself reports it: the nvcc on the PATH may be a wrapper."""
    trace = subprocess.run([nvcc, "--dryrun", "-x", "cu", "/dev/null"], capture_output=True, text=True).stderr
    top = next(line.split("TOP=")[1].strip() for line in trace.splitlines() if "TOP=" in line)
    return Path(top).resolve()


class NinjaBuild:
    """Collects compile commands and runs them with ninja, which rebuilds what changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines = [
            "ninja_required_version = 1.3",
            f"builddir = {folder}",
            "rule compile",
            "  command = $run -MD -MF $out.d -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
        ]
        self.objects: list[str] = []

    def add(self, source: Path, tag: str, command: list[str]) -> None:
        """Compile a source into one object; the tag keeps objects of one source apart."""
        target = self.folder / f"{source.relative_to(CSRC).as_posix().replace('/', '_')}.{tag}.o"
        escaped = " ".join(command).replace("$", "$$")
        self.lines += [f"build {target}: compile {source}", f"  run = {escaped}"]
        self.objects.append(str(target))

    def run(self) -> None:
        """Write build.ninja and build all objects."""
        import ninja

        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "build.ninja"
        file.write_text("\n".join(self.lines) + "\n")
        subprocess.run([os.path.join(ninja.BIN_DIR, "ninja"), "-f", str(file)], check=True)


class BuildNative(build_ext):
    """Compiles every source for every instruction set, CUDA ones if there is nvcc, and links one module."""

    def build_extension(self, ext: Extension) -> None:
        """Build the extension's objects with ninja, then let setuptools link them."""
        build = NinjaBuild(Path(self.build_temp).resolve() / "native")
        self._add_cpp(build)
        nvcc = find_nvcc()
        if nvcc and any(CSRC.glob("cuda/*.cu")):
            self._add_cuda(build, nvcc, ext)
        elif not nvcc:
            print("kpop_kernels: nvcc was not found, the CUDA kernels are left out", flush=True)
        build.run()
        ext.sources = []
        ext.extra_objects = build.objects
        # setuptools links anew only when one of these is newer than the module.
        ext.depends = build.objects
        super().build_extension(ext)

    def _add_cpp(self, build: NinjaBuild) -> None:
        import pybind11

        compiler = os.environ.get("CXX", "c++")
        includes = [f"-I{sysconfig.get_path('include')}", f"-I{pybind11.get_include()}", f"-I{CSRC}"]
        openmp = [] if sys.platform == "darwin" else ["-fopenmp"]
        machine = ["-DKPOP_X86"] if "avx2" in ISA_FLAGS else []
        base = [compiler, *COMMON_FLAGS, *openmp, *machine, *includes]
        for source in sorted(CSRC.rglob("*.cpp")):
            if source.parent.name != "cpu" or source.name in ONCE:
                # Conversions of arguments: two thirds of the size, and no time that would show.
                small = ["-Os"] if source.parent.name == "bindings" else []
                build.add(source, "all", [*base, *small, *self._cuda_definition()])
                continue
            for isa, flags in ISA_FLAGS.items():
                build.add(source, isa, [*base, *flags, f"-DKPOP_ISA={isa}"])

    @staticmethod
    def _cuda_definition() -> list[str]:
        return ["-DKPOP_WITH_CUDA"] if find_nvcc() and any(CSRC.glob("cuda/*.cu")) else []

    @staticmethod
    def _add_cuda(build: NinjaBuild, nvcc: Path, ext: Extension) -> None:
        targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in CUDA_ARCHS]
        targets.append(f"-gencode=arch=compute_{CUDA_ARCHS[-1]},code=compute_{CUDA_ARCHS[-1]}")
        # Kernels that promise bits name the rounding of each operation; the others may be contracted.
        exact = ["-ftz=false", "-prec-div=true", "-prec-sqrt=true"]
        host = ["-Xcompiler=-fPIC,-fvisibility=hidden", "-compress-mode=size"]
        for source in sorted(CSRC.glob("cuda/*.cu")):
            build.add(source, "cuda", [str(nvcc), "-std=c++17", "-O3", *exact, *host, *targets, f"-I{CSRC}"])
        libraries = next(path for path in (cuda_home(nvcc) / d for d in ("lib64", "lib")) if path.is_dir())
        ext.library_dirs.append(str(libraries))
        ext.libraries += ["cudart_static", "rt", "pthread", "dl"]


link_flags = [] if sys.platform == "darwin" else ["-fopenmp", "-s"]
setup(
    ext_modules=[Extension("kpop_kernels._native", sources=[], language="c++", extra_link_args=link_flags)],
    cmdclass={"build_ext": BuildNative},
)
