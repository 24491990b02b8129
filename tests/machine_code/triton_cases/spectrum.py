"""Bands of rows in float64, which may contract: results are rounded to float32, or are bounds with a margin."""

from functools import partial

import torch

from kpop_kernels.backends.triton import spectrum
from kpop_kernels.backends.triton.workspace import Group, Workspace
from kpop_kernels.tuning import SMALL
from tests.machine_code.amdgcn import expect_amd
from tests.machine_code.expectations import Expect
from tests.machine_code.triton_toolchain import TARGETS, Case

GROUPS = (Group(2, 528, 1040), Group(1, 256, 256))


def _normalize(damping: float) -> None:
    workspace = Workspace(GROUPS, SMALL[4], torch.device("cpu"))
    spectrum.normalize_(workspace, torch.empty(workspace.end.square_offset), damping, damping)


def _divide(eps: float) -> None:
    workspace = Workspace(GROUPS, SMALL[4], torch.device("cpu"))
    spectrum.normalize_wide_(workspace, torch.empty(workspace.end.wide_offset), eps)


_NVIDIA = Expect(
    vector_stores=False, no_fma=False, no_approximate_division=False, max_registers=128, max_shared=8192
)
_AMD = expect_amd(counts={}, max_registers=128, max_shared=8192)
_EXPECT = {target: _AMD if target.startswith("gfx") else _NVIDIA for target in TARGETS}

CASES = (
    Case("band_sums_kernel", "float32", partial(_normalize, 0.5), _EXPECT),
    Case("band_ratios_kernel", "float32", partial(_normalize, 0.5), _EXPECT),
    Case("band_normalize_kernel", "float32", partial(_normalize, 0.5), _EXPECT),
    Case("band_squares_kernel", "float32", partial(_divide, 0.5), _EXPECT),
    Case("band_divide_kernel", "float32", partial(_divide, 0.5), _EXPECT),
)
