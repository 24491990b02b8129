"""The dynamic map: one load from a table an element, one division a block."""

from functools import partial

import torch

from kpop_kernels.backends.triton import dynamic8 as product
from tests.machine_code.triton_blocks import NUMEL, case, dynamic, times, twice


def _quantize(dtype: torch.dtype, signed: bool) -> None:
    x = torch.zeros(NUMEL, dtype=dtype)
    product.quantize_dynamic8(x, signed=signed, out=dynamic(256))


def _quantize_list() -> None:
    (x,), out = twice(torch.zeros(NUMEL)), tuple(twice(*dynamic(256)))
    product.quantize_dynamic8_foreach(x, out=out)


def _restore_list() -> None:
    (out,) = twice(torch.zeros(NUMEL))
    product.dequantize_dynamic8_foreach(*twice(*dynamic(256)), out=out)


def _restore() -> None:
    product.dequantize_dynamic8(*dynamic(256), out=torch.zeros(NUMEL))


CASES = (
    *(
        case(
            "quantize_dynamic8_kernel",
            variant,
            partial(_quantize, dtype, variant.endswith(" signed")),
            nvidia={"LDG.128": wide, "LDG": wide + 16, "STG.128": 1, "STG": 2},
            amd={
                "buffer_load_dwordx4": wide // 2,
                "buffer_load_dword": 8,
                "buffer_store_dwordx2": 1,
                **times(1),
            },
            max_registers=64,
        )
        for variant, dtype, wide in (("float32", torch.float32, 4), ("bfloat16, signed", torch.bfloat16, 2))
    ),
    case(
        "dequantize_dynamic8_kernel",
        "float32",
        _restore,
        nvidia={"LDG.128": 1, "LDG": 18, "STG.128": 4, "STG": 4},
        amd={
            "buffer_load_dwordx2": 1,
            "buffer_load_dword": 9,
            "buffer_store_dwordx4": 2,
            **times(0),
        },
        max_registers=64,
    ),
    # A list adds the search of the item, and the loads of its row.
    case(
        "quantize_dynamic8_list_kernel",
        "float32",
        _quantize_list,
        nvidia={"LDG.128": 4, "STG.128": 1, "STG": 2},
        amd={"buffer_store_dwordx2": 1, **times(1)},
        max_registers=64,
    ),
    case(
        "dequantize_dynamic8_list_kernel",
        "float32",
        _restore_list,
        nvidia={"LDG.128": 1, "STG.128": 4, "STG": 4},
        amd={"buffer_store_dwordx4": 2, **times(0)},
        max_registers=64,
    ),
)
