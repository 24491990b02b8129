"""Blocks of a flattened tensor as the rows of a matrix."""

import torch
from torch import Tensor

SMALLEST_NORMAL = 2.0**-126


def flush(values: Tensor) -> Tensor:
    """Return the values with subnormals as 0, as hardware without subnormals sees them."""
    return values.masked_fill(values.abs() < SMALLEST_NORMAL, 0.0)


def to_blocks(flat: Tensor, block_size: int) -> Tensor:
    """Return one block a row; zeros, which change no block's range, fill the last."""
    missing = -flat.numel() % block_size
    if missing:
        flat = torch.nn.functional.pad(flat, (0, missing))
    return flat.reshape(-1, block_size)


def from_blocks(blocks: Tensor, like: Tensor) -> Tensor:
    """Return rows of blocks in the shape of the tensor that they came from."""
    return blocks.reshape(-1)[: like.numel()].reshape(like.shape)


def each(per_block: Tensor, codes: Tensor, block_size: int) -> Tensor:
    """Return a block's number for each of its elements, in the shape of codes."""
    return per_block.repeat_interleave(block_size)[: codes.numel()].reshape(codes.shape)
