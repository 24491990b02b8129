"""Reads what a kernel became on AMD: registers, spills, and how often each instruction is there."""

import re
from collections import Counter
from collections.abc import Mapping

from tests.machine_code.expectations import Expect
from tests.machine_code.sass import KernelCode

_INSTRUCTION = re.compile(r"^\t([a-z][a-z0-9_]+)(?:\s|$)", re.MULTILINE)


def read_amdgcn(text: str, name: str, target: str) -> KernelCode:
    """Read an assembly file that holds one kernel.

    Its registers are vector registers, its spills are registers of both kinds, and its instructions stand
    where those of NVIDIA's machine code do.
    """
    return KernelCode(
        name=name,
        target=target,
        registers=_metadata(text, "vgpr_count"),
        stack_bytes=_metadata(text, "private_segment_fixed_size"),
        shared_bytes=_metadata(text, "group_segment_fixed_size"),
        sass=Counter(_INSTRUCTION.findall(text)),
        spill_bytes=_metadata(text, "vgpr_spill_count") + _metadata(text, "sgpr_spill_count"),
    )


def expect_amd(*, counts: Mapping[str, int], max_registers: int, max_shared: int) -> Expect:
    """Return expectations without those in NVIDIA's instructions; ``counts`` has to stand in for them."""
    return Expect(
        vector_loads=False,
        vector_stores=False,
        no_fma=False,
        no_approximate_division=False,
        counts=counts,
        max_registers=max_registers,
        max_shared=max_shared,
    )


def _metadata(text: str, key: str) -> int:
    return int(re.search(rf"\.{key}:\s+(\d+)", text)[1])
