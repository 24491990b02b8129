"""The command: its report, tables and pictures, and what it says of peers that are not there."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from bench import __main__ as command_line
from bench import markdown, ops, output, peers, plots, readme, scaling
from bench.limits import Limits
from bench.machine import ROOT
from bench.optim import bench_step, contenders
from bench.run import Measurement
from bench.timing import CpuClock, Effort
from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS

ROW = {
    "op": str,
    "backend": str,
    "shape": list,
    "dtype": str,
    "median_us": float,
    "p10_us": float,
    "p90_us": float,
    "error": float,
    "bytes": int,
    "flops": int,
    "limit_fraction": float,
    "rivals": dict,
}


@pytest.fixture
def few(monkeypatch):
    """Make a run short: few rounds, known limits."""
    limits = Limits({2**20: 10.0}, {"float32": 100.0, "bfloat16": 100.0, "float16": 100.0})
    monkeypatch.setattr("bench.run.measure", lambda device, timer: limits)
    monkeypatch.setattr(command_line, "QUICK", Effort(0.0, 3, 3, 1.0))
    monkeypatch.setattr(ops.module("refresh"), "QUICK", (8, 16))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_the_report_has_its_schema(few, tmp_path):
    file = tmp_path / "report.json"
    assert command_line.main(["refresh", "--quick", "--threads", "1", "--json", str(file), "--plot"]) == 0
    report = json.loads(file.read_text())
    assert {"machine", "limits", "rows"} <= set(report)
    assert [row["shape"] for row in report["rows"]] == [[8], [8], [16], [16]]
    for row in report["rows"]:
        for key, kind in ROW.items():
            assert isinstance(row[key], kind), key
        assert row["p10_us"] <= row["median_us"] <= row["p90_us"]
        assert all(factor > 0 for factor in row["rivals"].values())
    machine = report["machine"]
    assert machine["threads"] == 1 and machine["torch"] == torch.__version__
    assert set(machine["absent"]) | set(machine["peers"]) == set(peers.PEERS)
    pictures = {file.name for file in tmp_path.iterdir()}
    assert {f"report-{name}.{kind}" for name in ("roofline", "times") for kind in ("png", "svg")} <= pictures


def test_a_report_keeps_what_other_jobs_wrote(tmp_path):
    file = tmp_path / "device.json"
    output.write({"results": [1], "rows": [1]}, file)
    output.write({"rows": [2.00004]}, file)
    assert json.loads(file.read_text()) == {"results": [1], "rows": [2.0]}


def test_every_committed_report_is_whole():
    """A number is worth nothing without its machine, its commit and the command."""
    for report in readme.reports():
        machine = report["machine"]
        assert machine["commit"] and machine["command"].startswith("python -m bench")
        assert report["wrong"] == []
        assert {row["op"] for row in report["rows"]} >= {"gram_ema_", "kron_rotate", "kron_adam_", "step"}
        for row in report["rows"]:
            assert set(ROW) <= set(row)


def test_readme_is_current():
    text = markdown.README.read_text()
    assert text == readme.updated(text), f"run {readme.COMMAND}"
    assert readme.PAGE.read_text() == readme.page(), f"run {readme.COMMAND}"


def test_losing_rows_and_noise_are_shown():
    row = dict.fromkeys(ROW, 1.0) | {
        "op": "kron_rotate",
        "backend": "cpu",
        "ours": True,
        "shape": [3, 5],
        "dtype": "float32",
        "setting": "",
        "rivals": {"faster": 0.5, "unsure": 2.0},
        "noisy": ["unsure", "cpu"],
        "refused": {"wrong one": "it is wrong"},
        "median_us": 1234.0,
    }
    other = row | {"shape": [7, 9], "rivals": {"wrong one": 3.0}, "refused": {}}
    assert output.columns([row, other])[-3:] == ["faster", "unsure", "wrong one"]
    cells = output.cells(row, [row, other])
    assert cells[:4] == ["3×5", "float32", "cpu", "~1.23 ms"]
    assert cells[-3:] == ["0.50", "~2.00", "refused"]


def test_the_fastest_backend_leads_its_case():
    row = {"op": "a", "shape": [1], "dtype": "float32", "setting": "", "backend": "composite", "ours": True}
    slow, fast, alone = (
        row | {"median_us": 3.0},
        row | {"median_us": 2.0},
        row | {"shape": [2], "median_us": 9.0},
    )
    rivals = [row | {"op": "b", "ours": False, "median_us": time} for time in (5.0, 4.0)]
    assert output.leads({"rows": [slow, fast, alone, *rivals]}) == [fast, alone, rivals[0]]


@pytest.mark.parametrize(
    ("microseconds", "text"), [(0.5, "0.5 µs"), (999.4, "999 µs"), (1000.0, "1 ms"), (2.5e6, "2.5 s")]
)
def test_durations(microseconds, text):
    assert output.duration(microseconds) == text


def test_every_operator_has_its_benchmark():
    covered = {op for name in ops.NAMES for op in ops.module(name).OPS}
    assert {name.replace("_foreach", "") for name in OPERATORS} <= covered


def test_every_quick_case_of_an_operator_names_a_backend_for_this_processor():
    """Each backend that serves the processor takes part, and so does a rival."""
    for case in ops.cases(ops.NAMES, "cpu", quick=True):
        if case.op in OPERATORS:
            own = {variant.name for variant in case.variants if variant.ours}
            assert own == {name for name in ("composite", "cpu") if case.op in backends.get(name).operators}
            assert any(not variant.ours for variant in case.variants)


def test_peers_that_are_absent_are_named(few, monkeypatch, capsys):
    monkeypatch.setattr(peers, "PEERS", {"no_such_peer": "no-such-peer"})
    assert command_line.main(["refresh", "--quick"]) == 0
    assert "absent: no_such_peer" in capsys.readouterr().out


def test_no_peer_is_imported_before_it_is_asked_for(tmp_path):
    for name in peers.PEERS:
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} was imported')")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import bench.__main__ as main, bench.peers as peers\n"
        "cases = list(main._cases(main.NAMES, 'cpu', quick=True))\n"
        "try: peers.load('torchao')\n"
        "except ImportError as error: print(len(cases) > 0, error)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True torchao was imported\n"


def test_optimizers_of_absent_peers_do_not_take_part(monkeypatch):
    monkeypatch.setattr(peers, "PEERS", {"no_such_peer": "no-such-peer"})
    names = [contender.name for contender in contenders.contenders()]
    assert "KPOP" in names and "torch AdamW" in names
    assert not any(name.startswith(tuple(contenders.PEERS)) for name in names)


def test_slow_starters_are_named_where_they_are_left_out():
    slow = contenders.Contender("slow", torch.optim.SGD, slow_start=True)
    measurement = Measurement(bench_step.case("two", ((3, 2),), iter([slow]), quick=True))
    measurement.admit("cpu")
    assert list(measurement.refused) == ["slow"]
    assert [v.name for v in bench_step.case("two", ((3, 2),), iter([slow]), quick=False).variants] == ["slow"]


def test_an_optimizer_that_does_not_descend_gets_no_time():
    def ascending(parameters):
        return torch.optim.SGD(parameters, lr=0.1, maximize=True)

    rivals = [contenders.Contender("up", ascending), contenders.Contender("down", torch.optim.SGD)]
    measurement = Measurement(bench_step.case("two", ((3, 2), (4, 4)), iter(rivals), quick=True))
    with torch.no_grad():
        measurement.admit("cpu")
        measurement.measure("cpu", CpuClock(), Effort(0.0, 2, 2, 1.0), seed=0)
    assert "up is wrong" in measurement.refused["up"]
    assert len(measurement.halves["down"][0]) == 2


def test_the_demo_layers_are_those_of_the_demo():
    examples = Path(__file__).parents[2] / "examples" / "language_model.py"
    spec = importlib.util.spec_from_file_location("language_model_of_the_demo", examples)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    shapes = [tuple(p.shape) for p in module.LanguageModel(module.ModelConfig()).parameters() if p.ndim == 2]
    assert sorted(shapes) == sorted(bench_step.LAYER_SETS["demo model"])


def test_unknown_operators_are_refused(capsys):
    assert command_line.main(["matmul"]) == 2
    assert "there is no matmul, it must be of adam8" in capsys.readouterr().err


def test_slope_of_a_power_law():
    assert scaling.slope((1, 2, 4), (3.0, 24.0, 192.0)) == pytest.approx(3.0)


def test_roofline_draws_every_contestant():
    row = {
        "op": "kron_rotate",
        "backend": "cpu",
        "ours": True,
        "shape": [4, 4],
        "dtype": "float32",
        "setting": "",
        "median_us": 2.0,
        "bytes": 64,
        "flops": 640,
        "rivals": {"composite": 2.0, "torch.matmul": 0.5},
    }
    limits = Limits({2**20: 10.0}, {"float32": 100.0}).report()
    machine = {"device": "a machine", "threads": 1, "date": "2026-01-02"}
    axes = plots.roofline({"machine": machine, "limits": limits, "rows": [row]}).axes[0]
    drawn = [tuple(point) for dots in axes.collections for point in dots.get_offsets()]
    assert {(10.0, 0.32), (10.0, 0.16), (10.0, 0.64)} <= {tuple(map(float, point)) for point in drawn}


def test_tables_print(few):
    console = Console(width=120, record=True)
    row = dict.fromkeys(ROW, 1.0) | {
        "op": "x",
        "backend": "cpu",
        "ours": True,
        "shape": [2],
        "dtype": "float32",
        "setting": "",
    }
    row |= {"rivals": {}, "noisy": [], "refused": {"rival": "it is wrong"}}
    machine = {
        "device": "d",
        "threads": 1,
        "cores": 2,
        "load": 0.1,
        "torch": "2",
        "triton": None,
        "commit": "abc",
    }
    machine |= {"dirty": False, "date": "2026-01-02", "peers": {}, "absent": ["heavyball"]}
    limits = Limits({2**20: 10.0}, {"float32": 100.0}).report()
    wrong = [{"case": "x 2 float32", "backend": "composite", "reason": "composite is wrong"}]
    output.show({"machine": machine, "limits": limits, "rows": [row], "wrong": wrong}, console)
    text = console.export_text()
    assert "absent: heavyball" in text
    assert "no time for rival: it is wrong" in text
    assert "WRONG: x 2 float32: composite is wrong" in text
