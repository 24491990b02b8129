"""What a kernel's machine code must and must not hold, stated as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tests.machine_code.sass import KernelCode, count

# The instruction of a tensor-core product by target: of mma.sync, and of the dots Triton compiles.
MMA_SYNC = MappingProxyType({"sm_80": "HMMA", "sm_90": "HMMA", "sm_100": "HMMA"})
TRITON_DOT = MappingProxyType({"sm_80": "HMMA", "sm_90": "HGMMA", "sm_100": "UTCHMMA"})

# Approximate forms of PTX; the correctly rounded ones carry .rn or another rounding.
_APPROXIMATE = ("div.full", "div.approx", "rcp.approx", "sqrt.approx", "rsqrt.approx")
_LOCAL_MEMORY = ("LDL", "STL")
_VECTOR_LOADS = ("LDG.128", "LDGSTS.128", "UTMALDG")
_VECTOR_STORES = ("STG.128", "UTMASTG")


@dataclass(frozen=True)
class Expect:
    """Expectations of one kernel on all targets; the defaults suit a streaming kernel that promises bits.

    Attributes:
        no_spills: No registers spilled, and no local memory at all.
        vector_loads: Global memory is read 16 bytes at a time somewhere.
        vector_stores: Global memory is written 16 bytes at a time somewhere.
        no_fma: Products and sums are separate in the PTX, and rounded so that ptxas must not fuse them. (The
            machine code of a correctly rounded division has fused instructions of its own.)
        no_approximate_division: No approximate division, reciprocal or square root in the PTX.
        tensor_cores: By target, the instruction that must occur; empty for kernels without products.
        counts: Exact numbers of SASS instructions, such as ``{"LDG.128": 4}``.
        max_registers: Of a thread.
        max_shared: Bytes of a block.
        max_up_to_exit: Instructions of a kernel without branches, subroutines not counted.
    """

    no_spills: bool = True
    vector_loads: bool = True
    vector_stores: bool = True
    no_fma: bool = True
    no_approximate_division: bool = True
    tensor_cores: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    max_registers: int = 255
    max_shared: int = 48 * 1024
    max_up_to_exit: int | None = None


def violations(kernel: KernelCode, expect: Expect) -> list[str]:
    """Return every way in which a kernel falls short, in words; an empty list if there is none."""
    found = [*_resource_violations(kernel, expect), *_instruction_violations(kernel, expect)]
    if expect.no_fma or expect.no_approximate_division:
        found += _rounding_violations(kernel, expect)
    return [f"{kernel.name} on {kernel.target}: {violation}" for violation in found]


def _resource_violations(kernel: KernelCode, expect: Expect) -> list[str]:
    found = []
    if expect.no_spills:
        if kernel.spill_bytes:
            found.append(f"spills {kernel.spill_bytes} bytes of registers")
        if kernel.stack_bytes:
            found.append(f"keeps {kernel.stack_bytes} bytes in local memory")
        accesses = sum(kernel.count(instruction) for instruction in _LOCAL_MEMORY)
        if accesses:
            found.append(f"accesses local memory in {accesses} instructions")
    if kernel.registers > expect.max_registers:
        found.append(f"uses {kernel.registers} registers, more than {expect.max_registers}")
    if kernel.shared_bytes > expect.max_shared:
        found.append(f"uses {kernel.shared_bytes} bytes of shared memory, more than {expect.max_shared}")
    return found


def _instruction_violations(kernel: KernelCode, expect: Expect) -> list[str]:
    found = []
    if expect.vector_loads and not any(kernel.count(instruction) for instruction in _VECTOR_LOADS):
        found.append("has no 16-byte load of global memory")
    if expect.vector_stores and not any(kernel.count(instruction) for instruction in _VECTOR_STORES):
        found.append("has no 16-byte store to global memory")
    tensor_core = expect.tensor_cores.get(kernel.target)
    if tensor_core and not kernel.count(tensor_core):
        found.append(f"has no {tensor_core}")
    for instruction, expected in expect.counts.items():
        actual = kernel.count(instruction)
        if actual != expected:
            found.append(f"has {actual} of {instruction}, not {expected}")
    if expect.max_up_to_exit is not None:
        assert kernel.up_to_exit is not None
        if kernel.up_to_exit > expect.max_up_to_exit:
            found.append(f"has {kernel.up_to_exit} instructions, more than {expect.max_up_to_exit}")
    return found


def _rounding_violations(kernel: KernelCode, expect: Expect) -> list[str]:
    if kernel.ptx is None:
        raise ValueError(f"the rounding of {kernel.name} is checked in its PTX, which was not given")
    found = []
    if expect.no_fma:
        fused = sum(number for instruction, number in kernel.ptx.items() if instruction.startswith("fma."))
        if fused:
            found.append(f"has {fused} fused multiply-adds")
        if _unrounded(kernel, "mul") and _unrounded(kernel, "add", "sub"):
            found.append("has products and sums without a rounding, which ptxas may fuse")
    if expect.no_approximate_division:
        for instruction in _APPROXIMATE:
            occurrences = count(kernel.ptx, instruction)
            if occurrences:
                found.append(f"has {occurrences} of {instruction}")
    return found


def _unrounded(kernel: KernelCode, *names: str) -> int:
    """Count floating-point operations whose rounding is left to the compiler."""
    forms = [
        f"{name}{flush}.{kind}"
        for name in names
        for flush in ("", ".ftz")
        for kind in ("f32", "f16", "f16x2")
    ]
    return sum(kernel.ptx[form] for form in forms)
