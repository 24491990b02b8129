"""One program an item, in float64, which may contract: its results are rounded to float32."""

import torch

from kpop_kernels.backends.triton.adam_scalars import adam_scalars
from tests.machine_code.amdgcn import expect_amd
from tests.machine_code.expectations import Expect
from tests.machine_code.triton_toolchain import TARGETS, Case


def _launch() -> None:
    step, lr = torch.tensor(7.0), torch.tensor(0.1)
    adam_scalars(step, lr, beta1=0.9, beta2=0.99, weight_decay=0.1, device=step.device)


_NVIDIA = Expect(
    vector_loads=False,
    vector_stores=False,
    no_fma=False,
    # A starting point of the logarithm's own, correct to more than float32.
    no_approximate_division=False,
    counts={"LDG": 2, "STG": 4},
    max_registers=40,
    max_shared=0,
)
_AMD = expect_amd(counts={"global_store_dword": 4}, max_registers=40, max_shared=0)

CASES = (
    Case(
        "adam_scalars_kernel",
        "float32 step and lr",
        _launch,
        {target: _AMD if target.startswith("gfx") else _NVIDIA for target in TARGETS},
    ),
)
