"""Two versions side by side: the old one is really the old one, and its worktree is gone afterwards."""

import subprocess

import pytest
import torch
from rich.console import Console

from bench import __main__ as command_line
from bench import compare, machine
from bench.timing import Effort


def worktrees():
    return subprocess.run(
        ["git", "worktree", "list"], cwd=machine.ROOT, capture_output=True, text=True, check=True
    ).stdout


def test_a_commit_is_compared_with_the_working_tree(capsys):
    before = worktrees()
    effort = Effort(seconds=0.0, least_rounds=3, most_rounds=3, longest=1.0)
    rows = compare.compare("HEAD", ["rebase_moments"], "cpu", 1, effort)
    assert {row["backend"] for row in rows} >= {"composite"}
    assert all(row["op"] == "rebase_moments_" and row["base_us"] > 0 and row["ratio"] > 0 for row in rows)
    assert worktrees() == before
    console = Console(width=100, record=True)
    compare.show(rows, "HEAD", console)
    assert "HEAD ÷ working tree" in console.export_text()


def test_a_version_in_another_folder_is_the_one_that_runs(tmp_path):
    """A worker imports the package of its folder, not the one of the working tree."""
    package = tmp_path / "bench"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "compare.py").write_text(
        'print("[]", flush=True)\ninput()\nprint("2.5", flush=True)\ninput()\n'
    )
    with compare.Worker.start(tmp_path, ("cpu", "1")) as worker:
        assert worker.available == {}
        assert worker.sample(("label", "backend"), 0) == 2.5


def test_an_unknown_commit_is_refused():
    with (
        pytest.raises(ValueError, match="'no-such-commit' is not a commit"),
        compare.checkout("no-such-commit"),
    ):
        pass


def test_a_version_that_ends_early_is_an_error(tmp_path, capfd):
    with (
        pytest.raises(RuntimeError, match="ended early"),
        compare.Worker.start(tmp_path, ("cpu", "1")) as worker,
    ):
        worker.available  # noqa: B018
    assert "No module named" in capfd.readouterr().err


def test_the_command_compares(monkeypatch, capsys):
    threads = torch.get_num_threads()
    asked = []
    monkeypatch.setattr(compare, "compare", lambda *arguments: asked.append(arguments) or [])
    assert command_line.main(["gram_ema", "step", "--base", "HEAD", "--device", "cpu", "--threads", "1"]) == 0
    assert asked == [("HEAD", ("gram_ema",), "cpu", 1, compare.QUICK)]
    torch.set_num_threads(threads)
