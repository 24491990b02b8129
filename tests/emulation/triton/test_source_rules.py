"""Every kernel keeps the rules and has its tests, and every rule finds what it is there for."""

from pathlib import Path

import pytest

from tests.emulation.triton.source_rules import kernel_files, launched_files, violations

ROOT = Path(__file__).parents[3]
FILES = kernel_files(ROOT / "kpop_kernels")
LAUNCHED = launched_files(ROOT / "kpop_kernels")
LAUNCHED_BY = {"adam8_product": "kron_adam8", "adam_product": "kron_adam", "weight_update": "kron_adam"}
"""Files of kernels that are launched from another file alone, whose tests interpret them."""


def test_kernel_files_are_found():
    assert {"memory.py", "affine.py", "quantize_int8.py"} <= {file.name for file in FILES}
    assert {"quantize_int8.py", "adam8.py"} <= {file.name for file in LAUNCHED}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_kernels_keep_the_rules(file):
    assert violations(file.read_text(), file.name) == []


@pytest.mark.parametrize("file", LAUNCHED, ids=lambda file: file.stem)
def test_every_kernel_file_is_interpreted(file):
    assert (Path(__file__).parent / f"test_{LAUNCHED_BY.get(file.stem, file.stem)}.py").exists()


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        pytest.param("x = tl.load(x_ptr)", "tl.load goes past the doors", id="load"),
        pytest.param("tl.store(x_ptr, 1.0)", "tl.store goes past the doors", id="store"),
        pytest.param("read = tl.load", "tl.load goes past the doors", id="alias"),
        pytest.param("x = y / 2", "approximate division", id="division"),
        pytest.param("x /= 2", "approximate division", id="division-in-place"),
        pytest.param("p = tl.make_block_ptr(x_ptr)", "is gone from Triton", id="block-pointer"),
        pytest.param("x = y.to(tl.bfloat16)", "conversion to bfloat16", id="bfloat16"),
        pytest.param("x = tl.cast(y, dtype=tl.bfloat16)", "conversion to bfloat16", id="bfloat16-by-keyword"),
    ],
)
def test_planted_violation_is_found(line, rule):
    source = f"@triton.jit\ndef kernel(x_ptr, y):\n    {line}\n"
    (found,) = violations(source, "planted.py")
    assert rule in found.rule
    assert found.line == 3


def test_planted_import_is_found():
    (found,) = violations("from triton.language import load\n", "planted.py")
    assert "say tl.name" in found.rule


def test_host_code_may_divide():
    assert violations("def launcher(n):\n    return n / 2\n", "planted.py") == []


def test_doors_may_load_store_and_convert():
    source = "@triton.jit\ndef door(p):\n    tl.store(p, tl.load(p).to(tl.bfloat16))\n"
    assert violations(source, "memory.py") == []
