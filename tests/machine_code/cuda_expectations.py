"""What each CUDA source of the package must compile to. A source without an entry fails the tests."""

from dataclasses import replace

from tests.machine_code.expectations import MMA_SYNC, Expect

# Four groups of 8 elements a thread: codes move 8 bytes at a time, elements 16. Kernels that take any element type
# hold the accesses of float32 (8), bfloat16 and float16 (4 each).
_ANY_TYPE = 8 + 4 + 4
_TABLES = 13 * 1024 + 256
_ELEMENTS = 32


def _by_256(loads: int, instructions_an_element: int) -> Expect:
    """Four blocks a warp without branches: instructions bound the time."""
    return Expect(
        counts={"LDG.128": loads, "STG.64": 4, "SHFL": 8, "I2IP": 16, "I2F": 0, "F2I": 1},
        vector_stores=False,
        max_registers=64,
        max_shared=0,
        max_up_to_exit=instructions_an_element * _ELEMENTS,
    )


_QUANTIZE = Expect(counts={"LDG.128": _ANY_TYPE}, vector_stores=False, max_registers=80, max_shared=16)
_DEQUANTIZE = Expect(
    counts={"LDG.64": 4, "STG.128": _ANY_TYPE, "I2F": 0}, vector_loads=False, max_registers=80, max_shared=0
)
_EMA_INT8 = Expect(
    counts={"LDG.128": _ANY_TYPE, "LDG.64": 4, "STG.128": 8, "STG.64": 4, "I2IP": 16},
    max_registers=128,
    max_shared=16,
)
_EMA_SQ_DYNAMIC8 = Expect(
    counts={"LDG.128": _ANY_TYPE, "LDG.64": 4, "STG.128": 8, "STG.64": 4},
    max_registers=128,
    max_shared=_TABLES,
)
_ADAM8 = Expect(
    counts={"LDG.128": 2 * _ANY_TYPE, "STG.128": _ANY_TYPE, "STG.64": 8, "I2IP": 16},
    max_registers=200,
    max_shared=_TABLES,
)


_TINY_CONVERSIONS = 22


def _root(n: int, float16: bool, max_registers: int) -> Expect:
    """Three products a step; the source holds dynamic shared memory, which is not counted here, below 98 KiB.

    Tiny orders take numbers of steps to double and back: products convert nothing.
    """
    tiles = n // 8
    products = {"HMMA.16816.F32": 3 * tiles * tiles // 2, "LDSM": 3 * tiles * tiles // 4}
    return Expect(
        vector_loads=False,
        vector_stores=False,
        no_fma=False,
        tensor_cores=MMA_SYNC,
        counts=products if float16 else {"HMMA.1688.F32.TF32": 9 * tiles * tiles, "F2F": _TINY_CONVERSIONS},
        max_registers=max_registers,
        max_shared=1024,
    )


def _rotations(n: int, max_registers: int, max_shared: int = 1024 + 128) -> Expect:
    """One set of instructions for all products, three of tf32 for one of float32; shared memory as for roots."""
    return Expect(
        vector_loads=False,
        vector_stores=False,
        no_fma=False,
        tensor_cores=MMA_SYNC,
        counts={"HMMA.1688.F32.TF32": 3 * (n // 8) ** 2},
        max_registers=max_registers,
        max_shared=max_shared,
    )


# By source file: the beginnings of kernel names, each of which must match a kernel, and what they share.
CUDA_EXPECTATIONS: dict[str, dict[str, Expect]] = {
    "quantize_int8.cu": {
        "kpop::quantize_int8_by_256<float, true>": _by_256(8, 26),
        "kpop::quantize_int8_by_256<__half, true>": _by_256(4, 26),
        "kpop::quantize_int8_by_256<__nv_bfloat16, true>": _by_256(4, 28),
        "kpop::quantize_int8_by_256<float, false>": _by_256(8, 13),
        "kpop::quantize_int8_by_256<__half, false>": _by_256(4, 13),
        "kpop::quantize_int8_by_256<__nv_bfloat16, false>": _by_256(4, 13),
        "kpop::quantize_int8<": _QUANTIZE,
        "kpop::list_quantize_int8<": replace(_QUANTIZE, max_registers=96),
        "kpop::dequantize_int8": _DEQUANTIZE,
        "kpop::list_dequantize_int8": _DEQUANTIZE,
    },
    "dynamic8.cu": {
        "kpop::quantize_dynamic8<": Expect(
            counts={"LDG.128": _ANY_TYPE}, vector_stores=False, max_registers=96, max_shared=_TABLES
        ),
        "kpop::dequantize_dynamic8": Expect(
            counts={"LDG.64": 4, "STG.128": _ANY_TYPE}, vector_loads=False, max_registers=80, max_shared=1024
        ),
    },
    "ema8.cu": {
        "kpop::ema_int8": _EMA_INT8,
        "kpop::list_ema_int8": _EMA_INT8,
        "kpop::ema_sq_dynamic8": _EMA_SQ_DYNAMIC8,
        "kpop::list_ema_sq_dynamic8": _EMA_SQ_DYNAMIC8,
    },
    "adam8.cu": {
        "kpop::adam8": _ADAM8,
        "kpop::list_adam8": replace(_ADAM8, max_registers=224),
    },
    "inverse_root.cu": {
        "kpop::inverse_root<kpop::Float32Products, 32>": _root(32, False, 128),
        "kpop::inverse_root<kpop::Float32Products, 64>": _root(64, False, 192),
        "kpop::inverse_root<kpop::Float32Products, 128>": _root(128, False, 255),
        "kpop::inverse_root<kpop::Float16Products, 32>": _root(32, True, 128),
        "kpop::inverse_root<kpop::Float16Products, 64>": _root(64, True, 192),
        "kpop::inverse_root<kpop::Float16Products, 128>": _root(128, True, 255),
    },
    "kron_adam.cu": {
        f"kpop::kron_adam<{n}>": _rotations(n, limit) for n, limit in ((32, 112), (64, 184), (128, 255))
    },
    "kron_adam8.cu": {
        f"kpop::kron_adam8<{n}>": replace(
            _rotations(n, 255, _TABLES + 2048),
            counts={"HMMA.1688.F32.TF32": 3 * (n // 8) ** 2, "I2IP": 16},
        )
        for n in (32, 64, 128)
    },
    "kron_rotate.cu": {
        f"kpop::kron_rotate<{n}>": _rotations(n, limit) for n, limit in ((32, 112), (64, 168), (128, 255))
    },
    "stochastic_round.cu": {
        "kpop::stochastic_round": Expect(
            counts={"LDG.128": 8, "STG.128": 4, "I2F": 0, "F2I": 0}, max_registers=72, max_shared=0
        ),
    },
}
