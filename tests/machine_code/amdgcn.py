"""Reads AMD assembly and the LLVM code that it comes from."""

import re
from collections import Counter

from tests.machine_code.sass import KernelCode

_INSTRUCTION = re.compile(r"^\t([a-z][a-z0-9_]+)(?:\s|$)", re.MULTILINE)
_OPERATION = re.compile(
    r" = (?:(?:tail )?call [^@\n]*@([\w.]+)|((?:[a-z]+)(?: (?:fast|contract|arcp|afn|reassoc))*)\b)"
)


def read_amdgcn(text: str, llvm: str, shared: int) -> KernelCode:
    """Return the code of a kernel that is alone in its file."""
    return KernelCode(
        registers=_metadata(text, "vgpr_count"),
        spills=_metadata(text, "vgpr_spill_count") + _metadata(text, "sgpr_spill_count"),
        shared=shared,
        instructions=Counter(_INSTRUCTION.findall(text)),
        intermediate=Counter(call or operation for call, operation in _OPERATION.findall(llvm)),
    )


def _metadata(text: str, key: str) -> int:
    return int(re.search(rf"\.{key}:\s+(\d+)", text)[1])
