"""``python -m kpop_kernels`` and what an import costs."""

import subprocess
import sys

import pytest
import torch

from kpop_kernels import __main__ as report
from kpop_kernels import _schema, backends, selftest


def python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


def test_prints_versions_serving_table_and_self_test(capsys):
    assert report.main() == 0
    out = capsys.readouterr().out
    assert torch.__version__ in out
    for op in _schema.OPERATORS:
        assert f"\n{op} " in out
    assert "all self-tests passed" in out


def test_runs_as_a_module():
    done = python("-m", "kpop_kernels")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all self-tests passed" in done.stdout


def test_every_operator_has_a_known_value():
    assert {case.op for case in selftest.CASES} == set(_schema.OPERATORS)


def test_every_available_backend_is_tested():
    tested = {(outcome.backend, outcome.op) for outcome in selftest.run(("cpu",))}
    wanted = set()
    for name, reason in backends.available().items():
        backend = backends.get(name)
        if reason is None and (not backend.devices or "cpu" in backend.devices):
            wanted |= {(name, op) for op in backend.operators}
    assert tested == wanted and ("composite", "gram_ema_") in tested


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_a_wrong_backend_gives_status_1(capsys, monkeypatch, value):
    def broken(exp_avg, *_):
        exp_avg.fill_(value)

    monkeypatch.setitem(backends.get("composite")._guarded, "rebase_moments_", broken)
    assert report.main() == 1
    out = capsys.readouterr().out
    failed = [line.split() for line in out.splitlines() if "FAILED" in line]
    assert [row[:3] for row in failed] == [["rebase_moments_", "cpu", "composite"]]
    assert f"1 of {len(list(selftest.run(('cpu',))))} self-tests failed" in out


def test_the_table_says_what_serves_what_and_why_not():
    rows = {row[:3]: row[3] for row in report.serving_rows(("cpu", "meta"))}
    for op in _schema.OPERATORS:
        for name in backends.NAMES:
            backend = backends.get(name)
            reason = backend.why_not(op, "cpu")
            said = rows[op, "cpu", name]
            assert said == f"no: {reason}" if reason else said
            for dtype in _schema.checks.FLOATING:
                served = backends.serving(op, torch.empty(0, dtype=dtype)) is backend
                assert (str(dtype).removeprefix("torch.") in said.split(", ")) == served
    assert rows["gram_ema_", "meta", "cpu"] == "no: cpu runs on cpu"


def test_columns_are_aligned():
    assert list(report.table([("a", "bb", "c"), ("ddd", "e", "")])) == ["a    bb  c", "ddd  e"]


BLOCKED = """
import sys
sys.modules["triton"] = sys.modules["numpy"] = None
import torch
import kpop_kernels
kpop_kernels.gram_ema_(torch.zeros(2, 2), torch.ones(2, 3), beta=0.0, alpha=1.0, side="left")
assert sys.modules["triton"] is sys.modules["numpy"] is None
print(kpop_kernels.backends.available())
"""


def test_imports_without_triton_and_numpy():
    done = python("-W", "ignore", "-c", BLOCKED)
    assert done.returncode == 0, done.stderr
    expected = backends.available() | {"triton": "triton is not installed"}
    assert done.stdout.strip() == str(expected)


def test_importing_the_package_does_not_import_the_compiler():
    """torch._dynamo alone takes more than a second, and brings triton."""
    done = python("-c", "import sys, kpop_kernels.optim; sys.exit('torch._dynamo' in sys.modules)")
    assert done.returncode == 0
