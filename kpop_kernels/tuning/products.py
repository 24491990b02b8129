"""Configurations of matrix products on a GPU, from arithmetic: no run-time tuning.

A tile of 128×128 reads half as much memory for each multiply-add as one of 64×64, but a device has to have a
tile for each of its multiprocessors to be busy at all. The order of one result decides, not how many of them a
launch has: what is beside a matrix in a batch must not change its bits.
"""

from dataclasses import dataclass
from typing import Literal

Float32Products = Literal["tf32x3", "tf32", "ieee"]


@dataclass(frozen=True)
class ProductConfig:
    """How a matrix product is cut into tiles.

    Attributes:
        block: Rows and columns of a program's tile of the result.
        block_k: Columns of A, and rows of B, in one step of the sum.
        num_warps: Warps of one program.
        num_stages: Depth of software pipelining: tiles of A and B on their way at a time.
        float32: How float32 operands are multiplied: each as three products of its two tf32 halves, as one of
            tf32, or by fused multiply-adds. On AMD always by float32 matrix instructions.
    """

    block: int
    block_k: int
    num_warps: int
    num_stages: int
    float32: Float32Products = "tf32x3"

    def __post_init__(self) -> None:
        for name, value in (("block", self.block), ("block_k", self.block_k), ("num_warps", self.num_warps)):
            if value < 1 or value & (value - 1):
                raise ValueError(f"ProductConfig: {name} is {value}, it must be a power of two")

    def blocks(self, n: int) -> int:
        """Return the number of tiles along a side of n elements."""
        return -(-n // self.block)

    def upper_tiles(self, n: int) -> int:
        """Return the number of tiles on and above the diagonal of n × n elements."""
        return self.blocks(n) * (self.blocks(n) + 1) // 2


# At most 96 KB of shared memory: chips with 99 KB a block run them too. With fewer warps 128×128 spills.
SMALL = {
    2: ProductConfig(block=64, block_k=64, num_warps=4, num_stages=3),
    4: ProductConfig(block=64, block_k=32, num_warps=8, num_stages=3),
}
"""Configurations by the bytes of an operand's element."""

LARGE = {
    2: ProductConfig(block=128, block_k=64, num_warps=8, num_stages=3),
    4: ProductConfig(block=128, block_k=32, num_warps=8, num_stages=3),
}
LARGE_IN_REGISTERS = {2: ProductConfig(block=128, block_k=32, num_warps=8, num_stages=4), 4: SMALL[4]}
"""For devices whose matrix instructions take both operands from registers: fewer of them fit."""

MULTIPROCESSORS = 132
"""Of the device that the choice is made for."""


def product_config(itemsize: int, order: int, *, operands_in_registers: bool) -> ProductConfig:
    """Return the configuration for symmetric results of one order.

    Args:
        itemsize: Bytes of an operand's element.
        order: Rows of the result.
        operands_in_registers: Whether the device's matrix instructions take both operands from registers.
    """
    large = (LARGE_IN_REGISTERS if operands_in_registers else LARGE)[itemsize]
    return large if large.upper_tiles(order) >= MULTIPROCESSORS else SMALL[itemsize]
