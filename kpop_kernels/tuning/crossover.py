"""The orders of matrices from which inverse roots are faster by eigenvalues than by Newton–Schulz."""

import json
from functools import lru_cache
from importlib.resources import files

ANY_STEPS = 2**31 - 1


@lru_cache
def most_steps(isa: str, threads: int, n: int) -> int:
    """Return with how many steps at most Newton–Schulz was measured to be faster than eigh on the CPU.

    Args:
        isa: Instruction set of the kernels.
        threads: Number of threads; the largest measured number that does not exceed it counts.
        n: Order of the matrix.

    Returns:
        A number of steps, 0 if eigh always is faster, `ANY_STEPS` if it never is.
    """
    table = json.loads(files(__package__).joinpath("inverse_root_cpu.json").read_text())
    measured = {int(count): orders for count, orders in table["eigh_from"][isa].items()}
    orders = measured[max(count for count in measured if count <= threads)]
    faster = [int(steps) for steps, order in orders.items() if n < order]
    return ANY_STEPS if len(faster) == len(orders) else max(faster, default=0)
