"""Passes over elements where a parameter has no factor, or the first moment is in the original basis."""

from functools import partial

import torch

from kpop_kernels.backends.triton import kron_adam
from tests.machine_code.triton_products import MANY, ONE, elementwise, zeros


def launch(
    shapes: tuple[tuple[int, int], ...] = ONE, *, dtype: torch.dtype = torch.float32, rotated: bool = False
) -> None:
    """Take steps; with a factor in the original basis."""
    tensors = [[zeros(m, n, dtype=dtype) for m, n in shapes] for _ in range(2)]
    moments = [[zeros(m, n) for m, n in shapes] for _ in range(2)]
    factors = [[zeros(m, m) if rotated else None for m, _ in shapes], [None for _ in shapes]]
    scalars = {"lr": torch.tensor(0.1), "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
    kron_adam.kron_adam_foreach_(
        *tensors,
        *moments,
        *factors,
        **scalars,
        step=[torch.tensor(7.0) for _ in shapes],
        found_inf=[torch.tensor(0.0) for _ in shapes],
        exp_avg_basis="original" if rotated else "rotated",
    )


CASES = (
    elementwise(
        "adam_kernel",
        "float32",
        partial(launch),
        {"LDG.128": 8, "STG": 6, "STG.128": 6},
        {"buffer_store_dwordx4": 3},
    ),
    elementwise(
        "adam_kernel",
        "bfloat16, table",
        partial(launch, MANY, dtype=torch.bfloat16),
        {"LDG.128": 6, "STG": 5, "STG.128": 5},
        {"buffer_store_dwordx4": 2, "buffer_store_dwordx2": 1},
    ),
    elementwise(
        "exp_avg_kernel",
        "float32",
        partial(launch, rotated=True),
        {"LDG.128": 4, "STG": 2, "STG.128": 2},
        {"buffer_store_dwordx4": 1},
    ),
)
