"""Lists of tensors as the compiled kernels on 8-bit blocks take them."""

from collections.abc import Iterable, Sequence
from itertools import repeat, starmap

import torch
from torch import Tensor

from .._native import BlockItem, Float

FLOATS = {
    torch.float32: Float.float32,
    torch.bfloat16: Float.bfloat16,
    torch.float16: Float.float16,
}


def block_items(
    *,
    x: Sequence[Tensor] | None = None,
    out: Sequence[Tensor] | None = None,
    affine: Sequence[Sequence[Tensor]] | None = None,
    dynamic: Sequence[Sequence[Tensor]] | None = None,
    places: tuple[Sequence[int], Sequence[int]] | None = None,
) -> list[BlockItem]:
    """Return an item for each entry of the lists, all of contiguous tensors.

    Args:
        x: Values that are read.
        out: Values that are written.
        affine: Codes, scales and zero points.
        dynamic: Codes and absmax.
        places: Streams and offsets.
    """
    counted = x if x is not None else out
    assert counted is not None
    streams, offsets = places or (repeat(0), repeat(0))
    columns = (
        [tensor.numel() for tensor in counted],
        *_values(x),
        *_values(out),
        *map(_addresses, affine or (None, None, None)),
        *map(_addresses, dynamic or (None, None)),
        streams,
        offsets,
    )
    return list(starmap(BlockItem, zip(*columns, strict=False)))


def _values(tensors: Sequence[Tensor] | None) -> tuple[Iterable[int], Iterable[Float]]:
    types = repeat(Float.float32) if tensors is None else [FLOATS[tensor.dtype] for tensor in tensors]
    return _addresses(tensors), types


def _addresses(tensors: Sequence[Tensor] | None) -> Iterable[int]:
    return repeat(0) if tensors is None else [tensor.data_ptr() for tensor in tensors]
