"""The helpers of the emulation tests: missing tools and guard bands."""

import numpy as np
import pytest

from tests.emulation.guard_bands import GuardBandError, GuardBands
from tests.emulation.tools import require_tool


def with_option(monkeypatch, config, strict):
    monkeypatch.setattr(config.option, "strict_tools", strict)
    return config


def test_a_tool_that_is_there_is_no_news(request):
    require_tool(request, "a tool", True)
    require_tool(request.config, "a tool", True)


def test_a_missing_tool_skips_with_its_name(request, monkeypatch):
    with_option(monkeypatch, request.config, False)
    with pytest.raises(pytest.skip.Exception, match="a tool is not installed"):
        require_tool(request, "a tool", False)


def test_a_missing_tool_fails_in_strict_mode(request, monkeypatch):
    config = with_option(monkeypatch, request.config, True)
    with pytest.raises(
        pytest.fail.Exception, match="a tool is not installed, and --strict-tools requires it"
    ):
        require_tool(config, "a tool", False)


@pytest.mark.parametrize("offset_bytes", [0, 4])
def test_guard_bands_keep_values_and_alignment(offset_bytes):
    bands = GuardBands()
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    array = bands.place("values", values, offset_bytes)
    np.testing.assert_array_equal(array, values)
    assert array.ctypes.data % 128 == offset_bytes
    assert np.isnan(bands.poisoned("output", (2, 3), np.float16)).all()
    bands.check()


@pytest.mark.parametrize("element, side", [(-1, "before"), (12, "behind")])
def test_guard_bands_see_a_write_beside_the_array(element, side):
    bands = GuardBands()
    array = bands.place("values", np.zeros(12, np.float32))
    assert np.isnan(np.lib.stride_tricks.as_strided(array[:1], (13,), (4,))[12])
    np.ndarray((1,), np.float32, buffer=array.base, offset=_offset(array) + 4 * element)[0] = 0
    with pytest.raises(GuardBandError, match=f"4 bytes {side} the array 'values'"):
        bands.check()


def _offset(array):
    return array.ctypes.data - np.asarray(array.base).ctypes.data
