"""Philox-4x32-10 in int64 arithmetic, which every device of torch has."""

import torch
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW32 = 0xFFFFFFFF
ROUNDS = 10


def random16(
    numel: int, device: torch.device, *, seed: int, step: Tensor, stream: int, offset: int
) -> Tensor:
    """Return 16 random bits for each of the elements offset, offset + 1, ... of a tensor, as int64.

    Eight elements share a call: key seed, counter (element >> 3, step, stream), and entry element & 7 of the
    four output words read as eight 16-bit numbers, low half first.
    """
    first = offset >> 3
    calls = torch.arange(first, (offset + numel + 7) >> 3, device=device)
    step = step.to(device=device, dtype=torch.int64) & LOW32
    counter = (calls & LOW32, calls >> 32, step, torch.full_like(step, stream))
    words = torch.stack(
        torch.broadcast_tensors(*_philox4x32(counter, (seed & LOW32, seed >> 32 & LOW32))), -1
    )
    entries = torch.stack([words & 0xFFFF, words >> 16], -1).reshape(-1)
    skipped = offset - 8 * first
    return entries[skipped : skipped + numel]


def _philox4x32(counter: tuple[Tensor, ...], key: tuple[int, int]) -> tuple[Tensor, ...]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        # Products wrap modulo 2^64; the sign that int64 sees is cut off with the bits above each half.
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c2 = (p1 >> 32 & LOW32) ^ c1 ^ k0, (p0 >> 32 & LOW32) ^ c3 ^ k1
        c1, c3 = p1 & LOW32, p0 & LOW32
        k0, k1 = (k0 + WEYL[0]) & LOW32, (k1 + WEYL[1]) & LOW32
    return c0, c1, c2, c3
