"""The parts of the demo: model, text, records, progress, and the sweep its learning rates come from."""

import io
import json
import os
import signal

import pytest
import torch
from rich.console import Console

import sweep_train_lm
from language_model import LanguageModel, ModelConfig, RotaryAttention
from progress import Interrupt, progress_display
from report import CurvePoint, Run, loss_figure, summarize, typical_milliseconds, write_atomically, write_json
from text_data import Text, python_reference, training_batches, validation_windows
from train_lm import OPTIMIZERS

CONFIG = ModelConfig(width=16, blocks=2, heads=2, hidden=24, context=8)


def test_a_token_does_not_see_those_after_it():
    torch.manual_seed(0)
    model = LanguageModel(CONFIG)
    tokens = torch.randint(256, (1, 8))
    changed = tokens.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 256
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5], rtol=0, atol=1e-7)
    assert not torch.equal(before[:, 5], after[:, 5])
    assert not torch.allclose(before[:, 7], after[:, 7], rtol=0, atol=1e-7)


def test_rotation_makes_products_depend_on_distance_alone():
    torch.manual_seed(0)
    attention = RotaryAttention(CONFIG)
    q, k = torch.randn(2, 1, 1, 1, 8).expand(2, 1, 1, 8, 8)
    products = (attention._rotate(q) @ attention._rotate(k).mT)[0, 0]
    for offset in range(-7, 8):
        diagonal = products.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert products[0].std() > 0.01


def test_training_never_touches_the_held_out_part():
    text = Text("counting", bytes(range(200)) + bytes(200) + bytes([255]) * 45)
    training, held_out = text.split()
    assert torch.cat((training, held_out)).tolist() == list(text.data)
    assert (len(training), len(held_out)) == (text.train_bytes, text.held_out_bytes) == (401, 44)
    batches = training_batches(training, batch=50, context=8, seed=0)
    tokens, targets = next(batches)
    assert tokens.shape == targets.shape == (50, 8)
    assert tokens.dtype == torch.int64
    torch.testing.assert_close(tokens[:, 1:], targets[:, :-1])
    drawn = torch.cat([next(batches)[1] for _ in range(40)])
    assert drawn[:, -1].eq(255).any()  # the last training byte is in reach
    assert drawn[:, :-1].ne(255).all()


def test_validation_windows_cover_the_held_out_part_evenly():
    tokens = torch.arange(100, dtype=torch.uint8)
    inputs, targets = validation_windows(tokens, count=4, context=10)
    assert inputs[:, 0].tolist() == [0, 29, 59, 89]
    torch.testing.assert_close(targets, inputs + 1)
    assert len(validation_windows(tokens, count=64, context=10)[0]) == 9
    assert len(validation_windows(tokens[:11], count=64, context=10)[0]) == 1


def test_a_stall_does_not_count_and_a_regular_refresh_does():
    times = ([0.001] * 9 + [0.011]) * 6
    times[33] += 5.0
    assert typical_milliseconds(times) == pytest.approx(2.0)
    assert typical_milliseconds([0.5]) == 500
    assert typical_milliseconds([]) is None


def make_run(*losses):
    run = Run("kpop", "KPOP", seed=0, lr=0.01, planned_steps=len(losses) - 1)
    run.record(losses[0])
    for loss in losses[1:]:
        run.model_times.append(0.25)
        run.optimizer_times.append(0.5)
        run.record(loss)
    return run


def test_first_below_is_the_first_measured_point():
    run = make_run(5.0, 3.0, 1.5, 1.7, 1.2)
    assert run.first_below(1.5) == CurvePoint(step=2, seconds=1.5, val_loss=1.5)
    assert run.first_below(1.0) is None
    assert run.first_below(None) is None


def test_a_diverged_run_is_written_as_strict_json(tmp_path):
    run = make_run(5.0, float("nan"), float("inf"))
    write_json(summarize(run, 2.0), tmp_path / "run.json")
    summary = json.loads((tmp_path / "run.json").read_text(), parse_constant=pytest.fail)
    assert summary["final_val_loss"] is None
    assert summary["steps_to_adamw"] is None
    loss_figure([run]).savefig(io.BytesIO())


def test_a_failed_write_leaves_the_old_file(tmp_path):
    def write_half(path):
        path.write_text("{")
        raise OSError("disk full")

    path = tmp_path / "report.json"
    write_json({"old": 1}, path)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, write_half)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json({"new": float("nan")}, path)
    assert json.loads(path.read_text()) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_the_picture_has_loss_against_steps_and_against_seconds():
    run = make_run(5.0, 3.0, 2.0)
    by_step, by_second = loss_figure([run]).axes
    assert (by_step.get_xlabel(), by_second.get_xlabel()) == ("step", "seconds of training")
    (steps,), (seconds,) = by_step.lines, by_second.lines
    assert steps.get_xydata().tolist() == [[0, 5], [1, 3], [2, 2]]
    assert seconds.get_xydata().tolist() == [[0, 5], [0.75, 3], [1.5, 2]]
    assert [text.get_text() for text in by_second.get_legend().get_texts()] == ["KPOP"]


def test_a_terminal_gets_a_bar_with_loss_and_time_left():
    run = make_run(5.0, 3.0, 2.0)
    stream = io.StringIO()
    with progress_display(Console(file=stream, force_terminal=True, width=100)) as show:
        show(run, 2.5)
    output = stream.getvalue()
    assert "KPOP" in output
    assert "━" in output
    assert "2/2" in output
    assert "loss 2.500" in output
    assert "left" in output


def test_interrupt_asks_first_and_insists_then():
    previous = signal.getsignal(signal.SIGINT)
    with Interrupt() as stop:
        assert not stop
        os.kill(os.getpid(), signal.SIGINT)
        assert stop
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is previous


SWEPT = json.loads(sweep_train_lm.RESULTS.read_text())


def test_what_the_readme_compares_has_been_swept():
    assert SWEPT.keys() >= {"adamw", "kpop", "kpop_seed"}
    assert SWEPT.keys() <= OPTIMIZERS.keys()


@pytest.mark.parametrize("name", SWEPT)
def test_learning_rate_is_the_best_of_the_committed_sweep(name):
    results = SWEPT[name]["results"]
    assert [result["lr"] for result in results] == list(OPTIMIZERS[name].grid)
    finite = [result for result in results if result["final_val_loss"] is not None]
    assert min(finite, key=lambda result: result["final_val_loss"])["lr"] == OPTIMIZERS[name].lr


def test_sweep_replaces_one_optimizer_and_keeps_the_others(tmp_path, monkeypatch):
    results = tmp_path / "sweep.json"
    write_json({"adamw": "kept", "kpop": "replaced"}, results)
    monkeypatch.setattr(sweep_train_lm, "RESULTS", results)
    monkeypatch.setattr(sweep_train_lm, "STEPS", 2)
    assert sweep_train_lm.main(["kpop"]) == 0
    sweeps = json.loads(results.read_text())
    assert sweeps["adamw"] == "kept"
    assert sweeps["kpop"]["command"] == "python examples/sweep_train_lm.py kpop"
    assert sweeps["kpop"]["text_sha256"] == python_reference().sha256
    losses = [result["final_val_loss"] for result in sweeps["kpop"]["results"]]
    assert len(set(losses)) == len(losses) == len(OPTIMIZERS["kpop"].grid)
