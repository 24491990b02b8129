"""Streaming kernels with promised bits: wide accesses, no contraction, two correctly rounded divisions a block."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kpop_kernels.backends.triton import quantize_int8 as product
from tests.machine_code.triton_blocks import NUMEL as NUMEL
from tests.machine_code.triton_blocks import affine, case, times, twice


def launch(
    dtype: torch.dtype = torch.float32,
    block_size: int = 256,
    *,
    numel: int = NUMEL,
    host_launcher: Callable[..., None] = product.quantize_int8,
    **options: Any,
) -> None:
    """Quantize."""
    x, step = torch.zeros(NUMEL, dtype=dtype)[:numel], torch.tensor(1)
    codes, *blocks = affine(block_size)
    host_launcher(x, block_size=block_size, step=step, out=(codes[:numel], *blocks), **options)


def _quantize_list(dtype: torch.dtype) -> None:
    (x,), out = twice(torch.zeros(NUMEL, dtype=dtype)), tuple(twice(*affine(256)))
    product.quantize_int8_foreach(x, step=[torch.tensor(1)] * 2, stream=[0, 1], offset=[0, 8], out=out)


def _restore_list() -> None:
    (out,) = twice(torch.zeros(NUMEL))
    product.dequantize_int8_foreach(*twice(*affine(256)), out=out)


def _restore(dtype: torch.dtype, block_size: int = 256) -> None:
    out = torch.zeros(NUMEL, dtype=dtype)
    product.dequantize_int8(*affine(block_size), block_size=block_size, dtype=dtype, out=out)


def _quantizes(variant: str, wide: int, blocks: int = 1, words: int = 1, **how: Any) -> Any:
    """Return a case: so many wide loads, so many blocks a thread has part of, so many loads of the step."""
    padded = blocks > 1
    return case(
        "quantize_int8_kernel",
        variant,
        partial(launch, **how),
        nvidia={"LDG.128": wide, "LDG": wide + words, "STG.128": 0 if padded else 1},
        amd={"buffer_load_dwordx4": wide // 2, "buffer_store_dwordx2": 1, **times(2)},
        max_registers=64,
        vector_stores=not padded,
    )


CASES = (
    _quantizes("float32, block 256", 4),
    _quantizes("bfloat16, block 256", 2, dtype=torch.bfloat16),
    _quantizes("float32, block 32", 4, block_size=32),
    _quantizes("bfloat16, block 2048", 2, dtype=torch.bfloat16, block_size=2048),
    _quantizes("float32, block 264", 4, blocks=2, block_size=264),
    _quantizes("float32, nearest", 4, words=0, rounding="nearest"),
    _quantizes("float32, shifted", 4, offset=3),
    *(
        case(
            "dequantize_int8_kernel",
            str(dtype).removeprefix("torch."),
            partial(_restore, dtype),
            nvidia={"LDG.128": 1, "LDG": 3, "STG.128": stores, "STG": stores},
            amd={"buffer_load_dwordx2": 1, "buffer_store_dwordx4": stores // 2, **times(0)},
            max_registers=48,
        )
        for dtype, stores in ((torch.float32, 4), (torch.bfloat16, 2))
    ),
    # A list adds the search of the item, and the loads of its row.
    *(
        case(
            "quantize_int8_list_kernel",
            str(dtype).removeprefix("torch."),
            partial(_quantize_list, dtype),
            nvidia={"LDG.128": wide, "STG.128": 1},
            amd={"buffer_load_dwordx4": wide // 2, "buffer_store_dwordx2": 1, **times(2)},
            max_registers=64,
        )
        for dtype, wide in ((torch.float32, 4), (torch.bfloat16, 2))
    ),
    case(
        "dequantize_int8_list_kernel",
        "float32",
        _restore_list,
        nvidia={"LDG.128": 1, "STG.128": 4, "STG": 4},
        amd={"buffer_load_dwordx2": 1, "buffer_store_dwordx4": 2, **times(0)},
        max_registers=48,
    ),
)
