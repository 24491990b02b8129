"""The search for the nearest value of the dynamic map as one look-up in a table."""

from functools import cache

import torch
from torch import Tensor

from ...codebooks import dynamic_map

# Values up to 1 whose float32 bits agree but for the last 16 form a bucket; all below 2⁻²⁴, which lies below
# the first midpoint, share the first one.
_FIRST_BUCKET, _LAST_BUCKET = 103 << 7, 127 << 7
_NO_MIDPOINT = 0x1FFFF


@cache
def dynamic_buckets(signed: bool, device: torch.device | str) -> Tensor:
    """Return for each bucket of magnitudes where its midpoint between neighbouring values of the map lies.

    The low byte is the number of midpoints before the bucket; above it are the last 16 bits of the bucket's own
    midpoint, or more than 16 bits hold if it has none. No bucket has two.
    """
    values = dynamic_map(signed)
    magnitudes = values[values >= 0]
    midpoints = (magnitudes[:-1] + magnitudes[1:]) * 0.5
    starts = (torch.arange(_FIRST_BUCKET, _LAST_BUCKET + 2, dtype=torch.int32) << 16).view(torch.float32)
    below = torch.bucketize(starts, midpoints)
    own = midpoints[below[:-1].clamp_max(midpoints.numel() - 1)].view(torch.int32) & 0xFFFF
    threshold = torch.where(below[1:] > below[:-1], own, _NO_MIDPOINT)
    return (threshold << 8 | below[:-1]).to(torch.int32).to(device)
