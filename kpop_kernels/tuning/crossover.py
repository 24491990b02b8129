"""The order of a matrix from which its inverse root is faster by eigenvalues than by Newton–Schulz."""

import json
from functools import lru_cache
from importlib.resources import files


@lru_cache
def eigh_from(isa: str, threads: int) -> int:
    """Return the smallest order for which eigh was measured to be faster on the CPU.

    Args:
        isa: Instruction set of the kernels.
        threads: Number of threads; the largest measured number that does not exceed it counts.
    """
    table = json.loads(files(__package__).joinpath("inverse_root_cpu.json").read_text())
    measured = {int(count): order for count, order in table["eigh_from"][isa].items()}
    return measured[max(count for count in measured if count <= threads)]
