"""Configurations of kernels that walk over quantization blocks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BlockwiseConfig:
    """How a flat array of quantization blocks is shared out.

    Attributes:
        elements: Elements of one program; of a larger block, a program has one.
        num_warps: Warps of one program.
        num_stages: Depth of software pipelining; there is no loop to pipeline.
    """

    elements: int
    num_warps: int
    num_stages: int = 1

    def __post_init__(self) -> None:
        for name, value in (("elements", self.elements), ("num_warps", self.num_warps)):
            if value < 1 or value & (value - 1):
                raise ValueError(f"BlockwiseConfig: {name} is {value}, it must be a power of two")

    def blocks(self, block_size: int) -> int:
        """Return the number of quantization blocks of one program, a power of two and at least one.

        A block counts as the next power of two of its elements.
        """
        return max(1, self.elements >> (block_size - 1).bit_length())


# 16 elements a thread: its codes are one 16-byte store, its float32 inputs four 16-byte loads.
BLOCKWISE = BlockwiseConfig(elements=2048, num_warps=4)

# What reads its scalars from a table needs more registers: with 16 elements a thread it spills on sm_80.
BLOCKWISE_OF_ITEMS = BlockwiseConfig(elements=2048, num_warps=8)
