"""Every Triton kernel compiles for every target into the code that is expected of it."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from kpop_kernels.tuning import BlockwiseConfig
from tests.emulation.tools import require_tool
from tests.emulation.triton.source_rules import kernel_files
from tests.machine_code import report
from tests.machine_code.expectations import TRITON_DOT, violations

HAS_TRITON = find_spec("triton") is not None
if HAS_TRITON:
    from kpop_kernels.backends.triton.launch import launch
    from tests.emulation.triton import kernels as door_kernels
    from tests.emulation.triton.guarded import mutant
    from tests.machine_code.triton_cases import FILES, absmax_quantize, all_cases
    from tests.machine_code.triton_toolchain import TARGETS, compile_case, compile_launches

CASES = [(case, target) for case in all_cases() for target in TARGETS] if HAS_TRITON else []
DOORS = BlockwiseConfig(elements=2048, num_warps=4)


@pytest.fixture(autouse=True)
def _triton(request):
    require_tool(request, "triton", HAS_TRITON)


@pytest.mark.parametrize(("case", "target"), CASES, ids=str)
def test_code_is_as_expected(case, target, report_row):
    code = compile_case(case, target)
    report_row(report.Row(case.kernel, case.variant, target, code))
    assert violations(code, case.expect[target]) == []


def test_every_kernel_file_has_cases():
    files = kernel_files(Path(__file__).parents[2] / "kpop_kernels" / "backends" / "triton")
    assert {file.stem for file in files} - {"memory"} == set(FILES)


def test_spill_is_found():
    violated = found(absmax_quantize.CASES[0], "sm_90", num_warps=1, maxnreg=24)
    assert any("bytes in local memory" in violation for violation in violated)
    assert any("accesses local memory" in violation for violation in violated)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_narrow_accesses_are_found(target):
    violated = found(absmax_quantize.CASES[0], target, launch=partial(absmax_quantize.launch, 4095))
    assert any("load" in violation for violation in violated)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_approximate_division_is_found(target, tmp_path):
    from kpop_kernels.backends.triton import absmax_quantize as product

    divided = "absmax.to(tl.float32, bitcast=True)"
    broken = mutant(product, tmp_path, {f"tl.div_rn({divided}, 127.0)": f"{divided} / 127.0"})
    launch = partial(absmax_quantize.launch, 4096, host_launcher=broken.absmax_quantize)
    violated = found(absmax_quantize.CASES[0], target, launch=launch)
    assert any("of div." in violation for violation in violated)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("target", "instruction"), [*TRITON_DOT.items(), ("gfx942", "v_mfma")])
def test_operands_reach_the_tensor_cores(target, instruction, dtype):
    a, b, c = torch.empty(64, 64, dtype=dtype), torch.empty(64, 64, dtype=dtype), torch.empty(64, 64)
    codes = compile_launches(
        lambda: launch(door_kernels.product_kernel, (1,), (a, b, c), DOORS, N=64), target
    )
    assert any(name.startswith(instruction) for name in codes["product_kernel"].sass)


def test_rounding_keeps_accesses_wide():
    x, y = torch.empty(4096), torch.empty(4096, dtype=torch.bfloat16)
    arguments = (x, y, 4096)
    codes = compile_launches(
        lambda: launch(door_kernels.copy_kernel, (2,), arguments, DOORS, BLOCK=DOORS.elements), "sm_90"
    )
    code = codes["copy_kernel"]
    assert [code.count(name) for name in ("LDG.128", "LDG", "STG.128", "STG")] == [4, 4, 2, 2]


def found(case, target, *, launch=None, **options):
    """Return what a case's expectations say when it is launched or compiled otherwise."""
    code = compile_launches(launch or case.launch, target, **options)[case.kernel]
    return violations(code, case.expect[target])
