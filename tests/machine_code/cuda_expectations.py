"""What each CUDA source of the package must compile to. A source without an entry fails the tests."""

from tests.machine_code.expectations import Expect


def _absmax_quantize(loads: int) -> Expect:
    """A thread's 16 elements come in this many 16-byte loads and leave in one store."""
    return Expect(counts={"LDG.128": loads, "STG.128": 1}, max_registers=64, max_shared=32)


# By source file: the beginnings of kernel names, each of which must match a kernel, and what they share.
CUDA_EXPECTATIONS: dict[str, dict[str, Expect]] = {
    "absmax_quantize.cu": {
        "kpop::absmax_quantize<float,": _absmax_quantize(loads=4),
        "kpop::absmax_quantize<__half,": _absmax_quantize(loads=2),
        "kpop::absmax_quantize<__nv_bfloat16,": _absmax_quantize(loads=2),
    },
}
