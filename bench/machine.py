"""What the measurements ran on."""

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch

from bench import peers
from kpop_kernels.backends.cpu import native

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"

# Instruction sets by which processors of one name may differ, as people call them.
_VECTORS = {"avx2": "AVX2", "avx512": "AVX-512"}


@dataclass(frozen=True)
class Device:
    """What something ran on.

    Attributes:
        type: torch's name for the kind of device.
        name: What it says it is.
        target: The architecture that kernels are compiled for, as the support matrix names it.
    """

    type: str
    name: str
    target: str


def accelerator() -> str | None:
    """Return the type of the accelerator that is present."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else None


def describe(device_type: str) -> Device:
    """Return the first device of a type."""
    if device_type == "cpu":
        vectors = _VECTORS.get(native.kernels().isa)
        name = f"{processor()} with {vectors}" if vectors else processor()
        return Device("cpu", name, platform.machine())
    if device_type == "mps":
        return Device("mps", f"Apple {platform.machine()}", "Apple")
    properties = torch.cuda.get_device_properties(0)
    if torch.version.hip:
        return Device("cuda", properties.name, properties.gcnArchName.split(":")[0])
    return Device("cuda", properties.name, f"sm_{properties.major}{properties.minor}")


def results_file(device_type: str) -> Path:
    """Return the file of a device, which has all that is known about it."""
    name = re.sub(r"[^a-z0-9]+", "-", describe(device_type).name.lower()).strip("-")
    return RESULTS / f"{name}.json"


def processor() -> str:
    """Return the name of the CPU."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    if platform.system() == "Darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string")
    return platform.processor() or platform.machine()


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def header(device_type: str) -> dict[str, Any]:
    """Return everything about the machine and the software that a number depends on."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    facts: dict[str, Any] = {
        "device": describe(device_type).name,
        "device_type": device_type,
        "processor": processor(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "load": load,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": peers.installed_version("triton"),
        "peers": peers.installed(),
        "absent": peers.absent(),
        "commit": _output("git", "rev-parse", "HEAD") or None,
        "dirty": bool(_output("git", "status", "--porcelain", "--untracked-files=no")),
        "date": date.today().isoformat(),
    }
    if device_type == "cuda":
        facts["driver"] = _gpu_facts()
    return facts


def _gpu_facts() -> str:
    if torch.version.hip:
        return f"HIP {torch.version.hip}"
    query = "driver_version,clocks.sm,clocks.mem,power.limit"
    facts = _output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "--id=0")
    return f"CUDA {torch.version.cuda}, {query}: {facts}"


def _output(*command: str) -> str:
    """Return what a program prints, nothing if it is not there or fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
