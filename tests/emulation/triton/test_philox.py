"""Philox on the Triton backend gives the known answers."""

import pytest
import torch

from kpop_kernels.tuning import BlockwiseConfig

pytestmark = pytest.mark.usefixtures("interpreted")

KNOWN = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN, ids=["zeros", "ones", "digits of pi"])
def test_known_answers(interpreted, counter, key, answer):
    from kpop_kernels.backends.triton.launch import launch
    from tests.emulation.triton.kernels import philox_kernel

    low, high, step, stream = counter
    calls = torch.tensor(low | high << 32, dtype=torch.uint64).view(torch.int64)
    words = torch.zeros(4, dtype=torch.int32)
    config = BlockwiseConfig(elements=1, num_warps=1)
    launch(philox_kernel, (1,), (words, calls, key[0] | key[1] << 32, step, stream), config)
    assert " ".join(f"{word & 0xFFFFFFFF:08x}" for word in words.tolist()) == answer
    assert interpreted == ["philox_kernel"]
