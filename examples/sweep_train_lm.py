"""Choose the learning rates of train_lm.py: train each optimizer at every rate of its grid.

The seed is none of those the comparison is shown for. The result, train_lm_sweep.json, is committed; naming
some optimizers replaces their part of it and keeps the others:

    python examples/sweep_train_lm.py
    python examples/sweep_train_lm.py kpop,kpop_seed
"""

import argparse
import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from progress import Interrupt, progress_display
from report import write_json
from text_data import python_reference
from train_lm import BATCH, INTERRUPTED, MODEL, OPTIMIZERS, Parser, optimizer_names, start_run, train

RESULTS = Path(__file__).with_name("train_lm_sweep.json")
STEPS = 400
SEED = 100


def sweep(name: str, console: Console, stop: Interrupt) -> dict:
    """Train one optimizer at every rate of its grid.

    Returns:
        The command that repeats the sweep, what was trained on what, and the final validation loss at each
        rate; None where it is not finite.
    """
    text = python_reference()
    results = []
    for lr in OPTIMIZERS[name].grid:
        run = start_run(name, steps=STEPS, seed=SEED, lr=lr)
        with progress_display(console) as show:
            train(run, text, torch.device("cpu"), show, stop)
        console.print(f"{run.label}, lr {lr:g}: final validation loss {run.final_val_loss}")
        results.append({"lr": lr, "final_val_loss": run.final_val_loss})
    return {
        "command": f"python examples/{Path(__file__).name} {name}",
        "steps": STEPS,
        "seed": SEED,
        "batch": BATCH,
        "model": asdict(MODEL),
        "text_sha256": text.sha256,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "results": results,
    }


def main(arguments: list[str] | None = None) -> int:
    """Sweep the optimizers named on the command line, or all; return the exit status."""
    parser = Parser(
        prog="sweep_train_lm.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "optimizers",
        nargs="?",
        type=optimizer_names,
        default=",".join(OPTIMIZERS),
        metavar="NAMES",
        help="separated by commas (default: %(default)s)",
    )
    names = parser.parse_args(arguments).optimizers

    console = Console(highlight=False, markup=False)
    sweeps = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with Interrupt() as stop:
        for name in names:
            result = sweep(name, console, stop)
            # Half a grid has no best rate.
            if stop:
                console.print(f"Interrupted: the sweep of {name} is not kept.")
                return INTERRUPTED
            sweeps[name] = result
            write_json(sweeps, RESULTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
