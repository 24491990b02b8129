"""What the tests of the Metal operators share: modes with orders and dtypes, inputs of every size, products."""

from collections.abc import Iterator

import pytest
from torch import Tensor

from tests.emulation.metal_emulator import ORDERS
from tests.emulation.metal_modes import MODES
from tests.ops.blocks import BLOCK_SIZES, DTYPES, ODD_BLOCK_SIZES, awkward_tensor, values
from tests.ops.grids import BOTH

SIZES = (0, 1, 7, 255, 256, 257)

PRODUCTS = (
    # batch, m, n, kinds of the left and right factor
    ((), 1, 1, BOTH),
    ((), 1, 37, BOTH),
    ((), 41, 1, BOTH),
    ((), 63, 65, BOTH),
    ((), 257, 96, BOTH),
    ((), 65, 33, ("shared", "none")),
    ((), 33, 65, ("none", "shared")),
    ((), 66, 31, ("none", "none")),
    ((3,), 33, 17, ("each", "shared")),
    ((2, 2), 5, 70, ("shared", "each")),
    ((2,), 70, 5, ("none", "each")),
    ((0,), 5, 7, BOTH),
)

# A Latin square: every mode meets every order and every dtype, every dtype every order.
in_every_mode = pytest.mark.parametrize(
    ("mode", "order", "dtype", "seed"),
    [
        pytest.param(mode, ORDERS[(i + j) % 3], dtype, 3 * i + j, id=f"{mode}-{dtype}")
        for i, mode in enumerate(MODES)
        for j, dtype in enumerate(DTYPES)
    ],
)


def inputs(seed: int, dtype: object) -> Iterator[tuple[Tensor, int]]:
    """Yield tensors with a block size: every size and every block size, and blocks with every awkward value."""
    block_sizes = (*BLOCK_SIZES, *ODD_BLOCK_SIZES)
    for i, block_size in enumerate(block_sizes):
        yield values(seed + i, 4999, dtype=dtype), block_size
        yield awkward_tensor(block_size).to(dtype), block_size
    for i, size in enumerate(SIZES):
        for block_size in (32, 256, block_sizes[(seed + i) % len(block_sizes)]):
            yield values(seed + i, size, dtype=dtype), block_size
