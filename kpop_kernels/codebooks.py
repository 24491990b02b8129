"""The values that 8-bit codes stand for, computed from their definition."""

from functools import cache

import torch
from torch import Tensor

BUCKET_BITS = 16
"""Values up to 1 whose float32 bits agree but for the last 16 share a bucket; none has two midpoints."""

FIRST_BUCKET = (127 - 24) << 7
"""The bucket of 2⁻²⁴, which all that is below shares: the first midpoint is above it."""


@cache
def dynamic_map(signed: bool, device: torch.device | str = "cpu") -> Tensor:
    """Return the 256 values of the dynamic map, ascending, float32.

    Decade i = 0 … 6 is 10^(i-6)·[0.1, 1], cut into 2^i (signed) or 2^(i+1) equal parts whose centres are
    values; 0 and 1 are added, and with a sign the negatives of all but 1. Borders of the parts count from the
    nearer end of the decade and have one rounding each, because their product and sum are exact in float64.

    Source:
        Dettmers et al., 8-bit Optimizers via Block-wise Quantization (2021).
    """
    positive = torch.cat([_decade(i, 2**i if signed else 2 ** (i + 1)) for i in range(7)])
    negative = -positive.flip(0) if signed else positive[:0]
    ends = torch.tensor([0.0, 1.0])
    return torch.cat([negative, ends[:1], positive, ends[1:]]).to(device)


@cache
def dynamic_midpoints(signed: bool, device: torch.device | str = "cpu") -> Tensor:
    """Return the 255 borders between neighbouring values of the map; a border belongs to the lower one."""
    values = dynamic_map(signed)
    return ((values[:-1] + values[1:]) * 0.5).to(device)


@cache
def dynamic_buckets(signed: bool, device: torch.device | str = "cpu") -> Tensor:
    """Return the table that finds the nearest of the map's values that are not negative, int32.

    Entry i belongs to bucket ``FIRST_BUCKET + i``. Its low byte is the number of midpoints below the bucket, and
    the rest are the last bits of the bucket's own midpoint, or more than these if there is none.
    """
    midpoints = dynamic_midpoints(signed)
    bits = midpoints[midpoints > 0].view(torch.int32)
    buckets = torch.arange(FIRST_BUCKET, (127 << 7) + 1, dtype=torch.int32)
    below = torch.searchsorted(bits, buckets << BUCKET_BITS)
    own = torch.cat([bits, bits.new_full((1,), 2**31 - 1)])[below]
    last = torch.where(own >> BUCKET_BITS == buckets, own & (1 << BUCKET_BITS) - 1, 1 << BUCKET_BITS)
    return (last << 8 | below).to(device=device, dtype=torch.int32)


def _decade(i: int, parts: int) -> Tensor:
    start, stop = torch.tensor([0.1, 1.0])
    step = ((stop - start) / parts).double()
    j = torch.arange(parts + 1, dtype=torch.float64)
    borders = torch.where(2 * j < parts, start + step * j, stop - step * (parts - j)).float()
    return (borders[:-1] + borders[1:]) * 0.5 * 10.0 ** (i - 6)
