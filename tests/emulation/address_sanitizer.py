"""Running Python under AddressSanitizer, which stops emulated kernels at accesses outside of allocations.

``python -m tests.emulation.address_sanitizer ARGUMENTS`` runs pytest that way.
"""

import ctypes
import os
import shutil
import subprocess
import sys

from tests.emulation.tools import ToolMissing


def loaded() -> bool:
    """Whether this process runs under AddressSanitizer."""
    return hasattr(ctypes.CDLL(None), "__asan_init")


def environment() -> dict[str, str]:
    """Return the environment in which a new Python process runs under g++'s AddressSanitizer.

    Raises:
        ToolMissing: There is no g++, or it comes without the sanitizer.
    """
    # When it is loaded, the sanitizer looks up how exceptions are thrown: that library comes along.
    libraries = [_library_path(name) for name in ("libasan.so", "libstdc++.so.6")]
    # The interpreter does not free everything at its end, and imported libraries do not either.
    return {**os.environ, "LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}


def _library_path(name: str) -> str:
    compiler = shutil.which("g++")
    if compiler is None:
        raise ToolMissing("AddressSanitizer needs g++")
    command = [compiler, f"-print-file-name={name}"]
    path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(path):
        raise ToolMissing(f"g++ has no {name}")
    return path


if __name__ == "__main__":
    os.execve(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]], environment())
