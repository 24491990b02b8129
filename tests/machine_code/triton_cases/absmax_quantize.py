"""A streaming kernel with promised bits: wide accesses, no contraction, two correctly rounded divisions."""

from collections.abc import Callable
from functools import partial

import torch

from kpop_kernels.backends.triton.absmax_quantize import absmax_quantize
from tests.machine_code.expectations import Expect, exactly
from tests.machine_code.triton_toolchain import TARGETS, Case


def launch(
    n: int,
    dtype: torch.dtype = torch.float32,
    block_size: int = 32,
    *,
    host_launcher: Callable[..., None] = absmax_quantize,
) -> None:
    """Quantize n elements."""
    codes, scales = torch.empty(n, dtype=torch.int8), torch.empty(-(-n // block_size))
    host_launcher(torch.zeros(n, dtype=dtype), block_size=block_size, out=(codes, scales))


def _expect(target: str, dtype: torch.dtype) -> Expect:
    """Expect 16 elements a thread, 8 on AMD with its 64 threads a warp, in accesses of 16 bytes."""
    if target.startswith("gfx"):
        return Expect(
            registers=40,
            shared=512,
            instructions={
                "buffer_load_dwordx4": exactly(8 * dtype.itemsize // 16),
                "buffer_store_dwordx2": exactly(1),
                # Five of them are in each of the two divisions.
                "v_fma_*|v_fmac_*|v_pk_fma_*": exactly(10),
            },
            intermediate={"fdiv": exactly(2), "fdiv *": exactly(0), "llvm.fma*|llvm.fmuladd*": exactly(0)},
        )
    return Expect(
        registers=72,
        shared=512,
        instructions={
            "LDL*|STL*": exactly(0),
            "LDG*": exactly(16 * dtype.itemsize // 16),
            "LDG*.128": exactly(16 * dtype.itemsize // 16),
            "STG*.128": exactly(1),
            "STG*": exactly(2),
        },
        intermediate={
            "fma.*": exactly(0),
            "div.rn.f32": exactly(2),
            "div.*": exactly(2),
            "rcp.*": exactly(0),
        },
    )


CASES = tuple(
    Case(
        "absmax_quantize_kernel",
        f"{str(dtype).removeprefix('torch.')}, block {block_size}",
        partial(launch, 4096, dtype, block_size),
        {target: _expect(target, dtype) for target in TARGETS},
    )
    for dtype in (torch.float32, torch.bfloat16, torch.float16)
    for block_size in (32, 256, 2048)
)
