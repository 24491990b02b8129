"""The command line of the demo: what it writes, what it says, and how it refuses and stops."""

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import train_lm
from text_data import python_reference

SCRIPT = Path(train_lm.__file__)
RUN_KEYS = {
    "optimizer",
    "seed",
    "final_val_loss",
    "steps_to_adamw",
    "seconds_to_adamw",
    "model_ms",
    "optimizer_ms",
    "state_bytes",
    "backends",
    "curve",
}


def read_report(directory):
    return json.loads((directory / "train_lm.json").read_text(), parse_constant=pytest.fail)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """One short comparison in its own process: what it printed, and where it wrote."""
    out = tmp_path_factory.mktemp("demo") / "made" / "by the program"
    options = ["--optimizers", "adamw,kpop", "--kpop-mode", "seed", "--steps", "8", "--seed", "3"]
    command = [sys.executable, SCRIPT, *options, "--out", out]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout, out


def test_json_has_a_complete_run_for_each_optimizer(demo):
    _, out = demo
    runs = read_report(out)["runs"]
    assert [run["optimizer"] for run in runs] == ["adamw", "kpop", "kpop_seed"]
    assert [run["label"] for run in runs] == ["AdamW", "KPOP", "KPOP (seed)"]
    for run in runs:
        assert run.keys() >= RUN_KEYS
        assert run["complete"]
        assert run["seed"] == 3
        assert run["model_ms"] > 0
        assert run["optimizer_ms"] > 0
        assert [point["step"] for point in run["curve"]] == list(range(9))
        assert run["final_val_loss"] == run["curve"][-1]["val_loss"]
        seconds = [point["seconds"] for point in run["curve"]]
        assert seconds == sorted(seconds)
        assert run["seconds"] == pytest.approx(seconds[-1])


def test_all_optimizers_start_from_the_same_weights_and_learn(demo):
    _, out = demo
    curves = [[point["val_loss"] for point in run["curve"]] for run in read_report(out)["runs"]]
    assert len({curve[0] for curve in curves}) == 1
    # Small initial logits make every byte equally likely.
    assert curves[0][0] == pytest.approx(math.log(256), abs=0.1)
    for curve in curves:
        assert curve[-1] < curve[0] - 0.5
    assert len({curve[-1] for curve in curves}) == 3


def test_json_says_when_adamws_loss_was_reached(demo):
    _, out = demo
    runs = read_report(out)["runs"]
    threshold = runs[0]["final_val_loss"]
    for run in runs:
        reached = next((point for point in run["curve"] if point["val_loss"] <= threshold), None)
        assert run["steps_to_adamw"] == (reached and reached["step"])
        assert run["seconds_to_adamw"] == (reached and reached["seconds"])
    assert runs[0]["steps_to_adamw"] is not None


def test_state_and_backends_are_those_of_the_optimizer(demo):
    _, out = demo
    adamw, kpop, _ = read_report(out)["runs"]
    parameters = sum(p.numel() for p in train_lm.LanguageModel(train_lm.MODEL).parameters())
    # Two float32 moments each, and a step counter per parameter.
    assert 8 * parameters < adamw["state_bytes"] < 8 * parameters + 1000
    assert kpop["state_bytes"] > adamw["state_bytes"]
    assert adamw["backends"] == {}
    assert {"gram_ema_", "kron_adam_foreach_"} <= kpop["backends"].keys()
    for served in kpop["backends"].values():
        assert served.keys() <= {"composite", "cpu"}
        assert sum(served.values()) > 0


def test_text_is_named_measured_and_hashed(demo):
    stdout, out = demo
    text = python_reference()
    assert f"{len(text.data):,} bytes, SHA-256 {hashlib.sha256(text.data).hexdigest()}" in stdout
    assert read_report(out)["text"]["sha256"] == text.sha256


def test_without_a_terminal_progress_is_plain_lines(demo):
    stdout, _ = demo
    lines = [line for line in stdout.splitlines() if line.startswith("KPOP: step ")]
    assert len(lines) == 8
    assert lines[2].startswith("KPOP: step 3/8, loss ")
    assert lines[2].endswith("s left")
    assert "\x1b" not in stdout


def test_ends_with_the_table_and_where_the_files_are(demo):
    stdout, out = demo
    table = stdout[stdout.index("Training, judged on held-out text") :]
    for label in ("AdamW", "KPOP", "KPOP (seed)"):
        assert f"│ {label} " in table
    assert "kron_adam_foreach_" in table
    assert "…" not in table
    assert f"Wrote {out / 'train_lm.json'} and {out / 'train_lm.png'}." in table


def test_leaves_two_files_and_nothing_else(demo):
    _, out = demo
    assert sorted(path.name for path in out.iterdir()) == ["train_lm.json", "train_lm.png"]
    assert (out / "train_lm.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_same_seed_gives_the_same_curves_and_another_seed_others(tmp_path):
    """For AdamW and all seven optimizers, which is what runs by default."""

    def curves(name, seed):
        arguments = ["--steps", "2", "--seed", str(seed), "--out", str(tmp_path / name)]
        assert train_lm.main(arguments) == 0
        return [[point["val_loss"] for point in run["curve"]] for run in read_report(tmp_path / name)["runs"]]

    first = curves("first", 0)
    assert len(first) == 8
    assert curves("again", 0) == first
    other = curves("other", 1)
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_trains_on_a_file(tmp_path, capsys):
    data = tmp_path / "tale.bin"
    data.write_bytes(bytes(range(256)) * 8)
    arguments = ["--data", str(data), "--optimizers", "adamw", "--steps", "2", "--out", str(tmp_path)]
    assert train_lm.main(arguments) == 0
    text = read_report(tmp_path)["text"]
    assert text["name"] == "tale.bin"
    assert text["sha256"] == hashlib.sha256(data.read_bytes()).hexdigest()
    assert (text["train_bytes"], text["held_out_bytes"]) == (1844, 204)
    assert "tale.bin, 2,048 bytes" in capsys.readouterr().out


def test_without_adamw_there_is_nothing_to_reach(tmp_path, capsys):
    assert train_lm.main(["--optimizers", "kpop", "--steps", "2", "--out", str(tmp_path)]) == 0
    (run,) = read_report(tmp_path)["runs"]
    assert run["steps_to_adamw"] is None
    assert run["seconds_to_adamw"] is None
    assert "AdamW was not run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "missing.txt"], "cannot read missing.txt: No such file or directory."),
        (["--data", "."], "cannot read .: Is a directory."),
        (["--data", "short.txt"], "short.txt is too short for one batch"),
        (["--data", "empty.txt"], "empty.txt is too short for one batch"),
        (["--optimizers", "adam"], "unknown optimizer 'adam'; known are adamw, kpop, soap,"),
        (["--optimizers", "adamw,"], "unknown optimizer ''"),
        (["--steps", "0"], "'0' is not a whole number of at least 1."),
        (["--steps", "-3"], "'-3' is not a whole number of at least 1."),
        (["--steps", "many"], "'many' is not a whole number of at least 1."),
        (["--seed", "-1"], "'-1' is not a whole number from 0 to 2**32 - 1."),
        (["--seed", "4294967296"], "'4294967296' is not a whole number"),
        (["--device", "toaster"], "'toaster' is not a device of this machine, which has cpu"),
        (["--device", "cpu:7"], "'cpu:7' is not a device of this machine"),
        (["--kpop-mode", "best"], "invalid choice: 'best'"),
        (["--out", "short.txt"], "cannot write to short.txt: File exists."),
        (["--out", "short.txt/below"], "cannot write to short.txt/below: Not a directory."),
        (["--out", "taken"], "cannot write taken/train_lm.json: it is a directory."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_refuses_with_one_sentence_and_status_2(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.txt").write_text("x" * 1000)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "taken" / "train_lm.json").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as stopped:
        train_lm.main(arguments)
    output = capsys.readouterr()
    assert stopped.value.code == 2
    assert sentence in output.err
    assert output.err.startswith("train_lm.py: ")
    assert output.err.count("\n") == 1
    assert output.out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    command = [sys.executable, SCRIPT, "--steps", "1000", "--out", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("AdamW: step "):
                break
        os.kill(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == ""
    assert f"what was measured so far is in {tmp_path / 'train_lm.json'} and" in stdout
    assert (tmp_path / "train_lm.png").stat().st_size > 0

    (run,) = read_report(tmp_path)["runs"]
    assert run["optimizer"] == "adamw"
    assert not run["complete"]
    assert run["final_val_loss"] is None
    assert 25 <= run["steps"] < 1000
    assert run["curve"][-1]["step"] == run["steps"]
    assert "│ AdamW     │ unfinished │" in stdout


def test_schedule_warms_up_stays_and_decays():
    factors = [train_lm.schedule(step, 100) for step in range(100)]
    assert factors[:10] == pytest.approx([0.1 * (step + 1) for step in range(10)])
    assert factors[10:51] == [1.0] * 41
    assert factors[75] == pytest.approx(0.51)
    assert factors[50:] == sorted(factors[50:], reverse=True)
    assert 0.02 < factors[-1] < 0.04
    assert train_lm.schedule(0, 1) == 1.0
