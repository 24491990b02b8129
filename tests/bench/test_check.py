"""The check on hardware, run on this processor: it measures what ran, and notices what is wrong."""

import json

import pytest
import torch

from bench import __main__ as command_line
from bench import check, machine
from bench.suite import PROBLEMS
from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def test_every_operator_has_a_problem():
    assert set(PROBLEMS) == set(OPERATORS)


def test_checks_every_backend_of_the_device(results, capsys):
    assert command_line.main(["--check", "--device", "cpu"]) == 0
    (file,) = results.glob("*.json")
    report = json.loads(file.read_text())
    checked = {(result["op"], result["backend"]) for result in report["results"]}
    expected = {(op, name) for name in ("composite", "cpu") for op in backends.get(name).operators}
    assert checked == expected
    assert all(result["passed"] for result in report["results"])
    assert f"{len(report['results'])} of {len(report['results'])} passed" in capsys.readouterr().out


def test_a_wrong_result_fails(results, monkeypatch, capsys):
    """The bound is small enough that a relative error of 1e-4 is seen in float32."""
    rotate = backends.get("composite").kron_rotate

    def slightly_wrong(*args, out=None, **kwargs):
        return rotate(*args, **kwargs) * (1 + 1e-4)

    def only_this(device_type):
        yield check.check("kron_rotate", "composite", torch.float32, device_type)

    monkeypatch.setitem(backends.get("composite")._guarded, "kron_rotate", slightly_wrong)
    monkeypatch.setattr(check, "run", only_this)
    assert check.main("cpu") == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "FAILED" in line)
    assert line.split()[:3] == ["kron_rotate", "composite", "float32"]


def test_says_that_there_is_no_accelerator(results, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert command_line.main(["--check"]) == 0
    assert "There is no accelerator here" in capsys.readouterr().out
    assert not results.exists()
