"""Every Triton kernel compiles for every target into the code that is expected of it."""

import importlib
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from kpop_kernels.tuning import SMALL, BlockwiseConfig
from tests.emulation.tools import require_tool
from tests.emulation.triton.source_rules import launched_files
from tests.machine_code import report
from tests.machine_code.expectations import TRITON_DOT, violations

HAS_TRITON = find_spec("triton") is not None
if HAS_TRITON:
    from kpop_kernels.backends.triton.launch import launch
    from tests.emulation.triton import kernels as door_kernels
    from tests.emulation.triton.operators import mutated
    from tests.machine_code.triton_cases import (
        FILES,
        adam8,
        all_cases,
        coupled,
        grouped,
        quantize_int8,
        symmetric,
    )
    from tests.machine_code.triton_toolchain import compile_case, compile_launches, specializations

CASES = [(case, target) for case in all_cases() for target in case.expect] if HAS_TRITON else []
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
    files = launched_files(Path(__file__).parents[2] / "kpop_kernels" / "backends" / "triton")
    assert {file.stem for file in files} == set(FILES)


def test_spill_is_found():
    violated = found(quantize_int8.CASES[0], "sm_90", num_warps=1, maxnreg=24)
    assert any("bytes in local memory" in violation for violation in violated)
    assert any("accesses local memory" in violation for violation in violated)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_narrow_accesses_are_found(target):
    violated = found(quantize_int8.CASES[0], target, launch=partial(quantize_int8.launch, numel=4095))
    assert any("load" in violation for violation in violated)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_approximate_division_is_found(target, tmp_path):
    divided = "tl.div_rn(hi - lo, 255.0 if PAPER else 254.0)"
    broken = mutated("quantize_int8", "affine", tmp_path, divided, "(hi - lo) / (255.0 if PAPER else 254.0)")
    launch = partial(quantize_int8.launch, host_launcher=broken.quantize_int8)
    violated = found(quantize_int8.CASES[0], target, launch=launch)
    assert any("of div." in violation for violation in violated)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_contraction_is_found(target):
    violated = found(quantize_int8.CASES[0], target, enable_fp_fusion=True)
    assert any("fma" in violation or "fused" in violation for violation in violated)


@pytest.mark.parametrize("case", [quantize_int8.CASES[0], adam8.CASES[0]] if HAS_TRITON else [], ids=str)
def test_eight_elements_share_a_call_of_the_generator(case):
    # A call has 10 rounds of 2 products; a thread has 16 elements. Calls share the products of step and stream.
    assert 30 <= compile_case(case, "sm_90").ptx["mul.hi.u32"] <= 2 * 20


def test_random_arguments_do_not_compile_anew():
    def launches():
        for seed in (0, 1, 16, 2**31, 2**64 - 1):
            quantize_int8.launch(seed=seed, stream=seed % 2**32, offset=seed >> 1 << 3 & 2**62)

    assert specializations(launches, "sm_90") == 1


def test_scalars_of_adam_do_not_compile_anew():
    def launches():
        for i in (0.0, 1.0, 16.0):
            adam8.launch(lr=i, step=i, seed=int(i), weight_decay=i, beta1=i / 17, eps=i, clip=i)

    assert specializations(launches, "sm_90") == 2


def test_numbers_given_by_value_do_not_compile_anew(monkeypatch):
    for file in ("adam8", "adam_scalars", "philox"):
        module = importlib.import_module(f"kpop_kernels.backends.triton.{file}")
        monkeypatch.setattr(module, "scalar_argument", lambda value, device: value.item())

    def launches():
        for i in (1, 2, 16):
            adam8.launch(lr=float(i), step=i)

    assert specializations(launches, "sm_90") == 1


def test_coefficients_of_products_do_not_compile_anew():
    def launches():
        for alpha, beta in ((0.1, 0.9), (1.0, 1.0), (-16.0, 2.0)):
            symmetric.launch(torch.float16, SMALL[2], alpha=alpha, beta=beta)
            grouped.launch(torch.float16, SMALL[2], kernel="wide", alpha=alpha)
            coupled.launch(torch.float16, SMALL[2], a=alpha)

    # The coupled step has a kernel for P beside that for Y and Z.
    assert specializations(launches, "sm_90") == 1 + 1 + 2


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
