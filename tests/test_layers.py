"""The rules that tools hold: layers, lint, format and types."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.emulation.tools import require_tool

ROOT = Path(__file__).parents[1]

CHECKS = {
    "import-linter": ("lint-imports", "--no-cache"),
    "ruff check": ("ruff", "check", "--no-cache"),
    "ruff format": ("ruff", "format", "--check", "--no-cache"),
    "mypy": ("mypy", f"--python-executable={sys.executable}"),
}


@pytest.mark.parametrize("command", CHECKS.values(), ids=CHECKS)
def test_holds(request, command):
    tool = shutil.which(command[0], path=sysconfig.get_path("scripts")) or shutil.which(command[0])
    require_tool(request, command[0], tool is not None)
    done = subprocess.run([tool, *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
