"""The committed table of machine code is what the kernels compile to."""

import pytest

from tests.emulation.tools import require_tool
from tests.machine_code import cuda_toolchain, report, sass


def test_report_is_current(request):
    require_tool(request, "nvcc", cuda_toolchain.available())
    require_tool(request, "triton", sass.readers_available())
    written = report.FILE.read_text()
    if report.toolchain() not in written:
        pytest.skip(f"report.md was written with other compilers than {report.toolchain()}")
    assert written == report.render(report.measure()), "run python -m tests.machine_code.report"
