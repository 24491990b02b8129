"""Both distributed examples on two processes: they train alike, and one resumes what the other has saved."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import distributed_training

EXAMPLES = Path(distributed_training.__file__).parent


def _run(script: str, *options: str) -> tuple[dict[int, float], list[int]]:
    """Losses by step, and the bytes of state of each rank."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*command, EXAMPLES / script, *options],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=EXAMPLES.parent,
    )
    assert done.returncode == 0, done.stderr
    losses = {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss ([\d.]+)", done.stdout)}
    return losses, [int(count) for count in re.findall(r"rank \d: (\d+) bytes", done.stdout)]


@pytest.mark.slow
def test_ddp_and_fsdp2_train_alike_and_share_checkpoints(tmp_path):
    checkpoint = str(tmp_path / "checkpoint")
    replicated, state = _run("train_lm_ddp.py", "--steps", "20", "--checkpoint", checkpoint)
    sharded, _ = _run("train_lm_fsdp2.py", "--steps", "20")
    assert replicated[20] < 4.5  # from ln 256 = 5.55
    assert replicated[20] == pytest.approx(sharded[20], abs=0.01)
    assert max(state) / sum(state) < 0.55

    resumed, _ = _run("train_lm_fsdp2.py", "--steps", "40", "--checkpoint", checkpoint)
    assert list(resumed) == [40] and resumed[40] < replicated[20]
