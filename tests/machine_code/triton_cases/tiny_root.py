"""One program a matrix of order up to 8, in float64, which may contract: results are rounded to float32."""

from functools import partial

import torch

from kpop_kernels.backends.triton.tiny_root import tiny_roots
from tests.machine_code.amdgcn import expect_amd
from tests.machine_code.expectations import Expect
from tests.machine_code.triton_toolchain import TARGETS, Case


def _launch(p: int) -> None:
    stages = {"schedule": [1.5, -0.5] * 10, "second_stage": [1.5, -0.5] * 7}
    tiny_roots(torch.zeros(3, 5, 5), p, **stages, damping=0.1, relative_damping=0.1)


_NVIDIA = Expect(
    vector_loads=False,
    vector_stores=False,
    no_fma=False,
    no_approximate_division=False,
    max_registers=255,
    max_shared=8192,
)
_AMD = expect_amd(counts={}, max_registers=255, max_shared=8192)
_EXPECT = {target: _AMD if target.startswith("gfx") else _NVIDIA for target in TARGETS}

CASES = tuple(Case("tiny_root_kernel", f"p = {p}", partial(_launch, p), _EXPECT) for p in (1, 2, 4))
