"""A streaming kernel with promised bits: wide accesses, no contraction, two correctly rounded divisions."""

from collections.abc import Callable
from functools import partial

import torch

from kpop_kernels.backends.triton.absmax_quantize import absmax_quantize
from tests.machine_code.amdgcn import expect_amd
from tests.machine_code.expectations import Expect
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
    """Expect 16 elements a thread, 8 on AMD with its 64 threads a warp, loaded 16 bytes at a time."""
    if target.startswith("gfx"):
        return expect_amd(
            max_registers=40,
            max_shared=512,
            counts={
                "buffer_load_dwordx4": 8 * dtype.itemsize // 16,
                "buffer_store_dwordx2": 1,
                # Those of the two divisions: the kernel's own products and sums are not fused.
                "v_fma_f32": 6,
                "v_fmac_f32_e32": 4,
                "v_pk_fma_f32": 0,
            },
        )
    loads = 16 * dtype.itemsize // 16
    return Expect(
        counts={"LDG": loads, "LDG.128": loads, "STG": 2, "STG.128": 1},
        max_registers=72,
        max_shared=512,
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
