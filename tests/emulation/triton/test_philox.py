"""Philox on the Triton backend gives the known answers."""

import pytest
import torch

from kpop_kernels.tuning import BlockwiseConfig
from tests.ops.blocks import GOLDEN

pytestmark = pytest.mark.usefixtures("interpreted")

KNOWN = [
    (*([int(word, 16) for word in known[name]] for name in ("counter", "key")), known["out"])
    for known in GOLDEN["philox4x32_10"]
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
