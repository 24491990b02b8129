"""Sums of the compiled CPU kernels stay in registers."""

import platform
import re
import shutil
import subprocess

import pytest

from kpop_kernels import _native
from tests.emulation.tools import require_tool

SUM_IN_MEMORY = re.compile(
    r"vfmadd\w+ +(-?0x[0-9a-f]+\(%r[bs]p\)),%[xyz]mm\d+,(%[xyz]mm\d+)\n\s+vmovap[sd] +\2,\1\n"
)
"""A multiply-add to a sum on the stack that is put back there: each waits for the one before in memory."""


def disassembled(path: str) -> str:
    command = ["objdump", "-d", "--no-show-raw-insn", "--no-addresses", path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the instructions of x86-64")
def test_no_product_adds_up_in_memory(request):
    require_tool(request, "objdump", shutil.which("objdump") is not None)
    code = disassembled(_native.__file__)
    assert code.count("vfmadd") > 200
    assert SUM_IN_MEMORY.findall(code) == []


def test_a_sum_in_memory_is_found():
    bad = "\tvfmadd213ps -0x250(%rbp),%ymm1,%ymm9\n\tvmovaps %ymm9,-0x250(%rbp)\n"
    constant = "\tvfmadd213ps -0x250(%rbp),%ymm1,%ymm9\n\tvmovaps %ymm9,-0x270(%rbp)\n"
    assert SUM_IN_MEMORY.findall(bad) and not SUM_IN_MEMORY.findall(constant)
