"""Configurations of the matrix products of Kronecker rotations on a GPU, from arithmetic: no run-time tuning."""

from collections.abc import Iterable
from dataclasses import dataclass

from .products import MULTIPROCESSORS


@dataclass(frozen=True)
class RotationConfig:
    """How the matrix products of a rotation are cut into tiles.

    Attributes:
        block_m: Rows of a tile of the result.
        block_n: Columns of a tile of the result.
        block_k: Columns of the left factor, and rows of the right one, in one step of the sum.
        num_warps: Warps of one program.
        num_stages: Depth of software pipelining: steps whose operands are on their way at a time.
    """

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int

    def __post_init__(self) -> None:
        blocks = {"block_m": self.block_m, "block_n": self.block_n, "block_k": self.block_k}
        for name, value in (blocks | {"num_warps": self.num_warps}).items():
            if value < 1 or value & (value - 1):
                raise ValueError(f"RotationConfig: {name} is {value}, it must be a power of two")

    def tiles(self, m: int, n: int) -> int:
        """Return the number of tiles of an m × n result."""
        return -(-m // self.block_m) * -(-n // self.block_n)


# At most 96 KB of shared memory: chips with 99 KB a block run them too. Of float32, steps of 32 spill on sm_80
# where the right factor is transposed.
SMALL_TILES = {
    2: RotationConfig(block_m=64, block_n=64, block_k=64, num_warps=4, num_stages=3),
    4: RotationConfig(block_m=64, block_n=64, block_k=32, num_warps=8, num_stages=3),
}
LARGE_TILES = {
    2: RotationConfig(block_m=128, block_n=128, block_k=64, num_warps=8, num_stages=3),
    4: RotationConfig(block_m=128, block_n=128, block_k=16, num_warps=8, num_stages=4),
}
"""Configurations by the bytes of the larger operand's element."""

ROWS_OF_256 = RotationConfig(block_m=64, block_n=256, block_k=16, num_warps=8, num_stages=4)
"""Of a product whose end works on blocks of 256 elements: a row of a tile is one."""

PASS = RotationConfig(block_m=1, block_n=1024, block_k=1, num_warps=4, num_stages=1)
"""Of a pass over elements without a product."""


def rotation_config(itemsize: int, results: Iterable[tuple[int, int, int]]) -> RotationConfig:
    """Return the configuration for the products of one launch.

    Tiles of 128×128 read half as much for each multiply-add as those of 64×64, but a device has to have one for
    each of its multiprocessors to be busy.

    Args:
        itemsize: Bytes of the larger operand's element.
        results: Number of matrices, rows and columns of each product.
    """
    large = LARGE_TILES[itemsize]
    tiles = sum(matrices * large.tiles(m, n) for matrices, m, n in results)
    return large if tiles >= MULTIPROCESSORS else SMALL_TILES[itemsize]
