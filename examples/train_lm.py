"""Train a small language model with AdamW and with each optimizer of the package, and compare what they reach.

All start from the same weights and see the same batches under the same schedule. The text is the language
reference that every CPython carries, or any file:

    python examples/train_lm.py
    python examples/train_lm.py --optimizers adamw,kpop --steps 400
    python examples/train_lm.py --data my.txt --steps 1000 --out results
"""

import argparse
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

import torch
from rich.console import Console
from torch.optim.lr_scheduler import LambdaLR

from kpop_kernels import backends
from kpop_kernels.optim import KPOP, SOAP, Clean, Muon, OnlineKLShampoo, QClean, Shampoo, state_bytes
from language_model import LanguageModel, ModelConfig
from progress import Interrupt, ShowProgress, progress_display
from report import BASELINE, Run, backend_table, comparison_table, require_writable, write_report
from text_data import (
    Text,
    python_reference,
    read_text,
    require_one_batch,
    training_batches,
    validation_windows,
)

MODEL = ModelConfig()
BATCH = 16
VALIDATION_WINDOWS = 64
VALIDATIONS = 40
AUXILIARY_LR = 3e-3
INTERRUPTED = 130


def adamw(model: LanguageModel, lr: float) -> torch.optim.Optimizer:
    """Return AdamW with one learning rate for all parameters."""
    return torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)


def kpop(model: LanguageModel, lr: float, mode: str = "default") -> torch.optim.Optimizer:
    """Return KPOP attached to the model: `lr` for the matrices in the blocks, a fixed one for the rest."""
    matrices, rest = parts(model)
    optimizer = KPOP([{"params": matrices}, {"params": rest, "lr": AUXILIARY_LR}], lr=lr, mode=mode)
    optimizer.attach(model)
    return optimizer


def by_method(
    model: LanguageModel, lr: float, *, method: Callable[..., torch.optim.Optimizer], **options: object
) -> torch.optim.Optimizer:
    """Return an optimizer whose method trains the matrices in the blocks, its own Adam at a fixed rate the rest."""
    matrices, rest = parts(model)
    groups = [{"params": matrices}, {"params": rest, "lr": AUXILIARY_LR, "rules": {"*": "adam"}}]
    return method(groups, lr=lr, weight_decay=0.0, **options)


def parts(model: LanguageModel) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the matrices in the blocks, and embedding, head and gains."""
    matrices, rest = [], []
    for name, parameter in model.named_parameters():
        in_block = name.startswith("blocks.") and parameter.ndim == 2
        (matrices if in_block else rest).append(parameter)
    return matrices, rest


@dataclass(frozen=True)
class Recipe:
    """How to make an optimizer for this task.

    Attributes:
        label: Name in tables and pictures.
        lr: Peak learning rate: the best of `grid` in train_lm_sweep.json where that has the optimizer, else the
            best for matrices of this size in an earlier comparison.
        grid: Learning rates that sweep_train_lm.py tries.
        build: Makes the optimizer from a model and a learning rate.
    """

    label: str
    lr: float
    grid: tuple[float, ...]
    build: Callable[[LanguageModel, float], torch.optim.Optimizer]


OPTIMIZERS: dict[str, Recipe] = {
    "adamw": Recipe("AdamW", 3e-3, (1e-3, 3e-3, 1e-2), adamw),
    "kpop": Recipe("KPOP", 3e-3, (1e-3, 3e-3, 1e-2, 3e-2), kpop),
    "soap": Recipe("SOAP", 1e-2, (3e-3, 1e-2, 3e-2), partial(by_method, method=SOAP)),
    "muon": Recipe(
        "Muon",
        1e-2,
        (3e-3, 1e-2, 3e-2),
        partial(by_method, method=Muon, adjust_lr_fn="match_rms_adamw"),
    ),
    "okls": Recipe("OnlineKLShampoo", 3e-2, (1e-2, 3e-2, 1e-1), partial(by_method, method=OnlineKLShampoo)),
    "shampoo": Recipe("Shampoo", 1e-2, (3e-3, 1e-2, 3e-2), partial(by_method, method=Shampoo)),
    "clean": Recipe("Clean", 1e-2, (3e-3, 1e-2, 3e-2), partial(by_method, method=Clean, rank=32)),
    "qclean": Recipe("QClean", 1e-2, (3e-3, 1e-2, 3e-2), partial(by_method, method=QClean, rank=32)),
    "kpop_seed": Recipe("KPOP (seed)", 3e-3, (1e-3, 3e-3, 1e-2), partial(kpop, mode="seed")),
}


def schedule(step: int, steps: int) -> float:
    """Return the factor on the learning rate: up over a tenth, flat to the middle, down to 2 %."""
    warmup, middle = max(1, steps // 10), steps / 2
    if step < warmup:
        return (step + 1) / warmup
    if step < middle:
        return 1.0
    return 1.0 - 0.98 * (step - middle) / (steps - middle)


def start_run(name: str, *, steps: int, seed: int, lr: float | None = None) -> Run:
    """Return the empty record of a run of one of `OPTIMIZERS`, at its own learning rate if none is given."""
    recipe = OPTIMIZERS[name]
    return Run(name, recipe.label, seed, recipe.lr if lr is None else lr, steps)


def train(run: Run, text: Text, device: torch.device, show: ShowProgress, stop: Interrupt) -> str:
    """Train a fresh model and record everything in `run`.

    Args:
        run: An empty record that names optimizer, seed, learning rate and number of steps.
        text: What to train on.
        device: Where to train.
        show: Called after every step with the run and the training loss.
        stop: Training ends early, with a last validation, once this is true.

    Returns:
        The optimizer's own account of how it treats each parameter; empty when it has none.
    """
    torch.manual_seed(run.seed)
    model = LanguageModel(MODEL).to(device)
    training, held_out = text.split()
    batches = training_batches(training, batch=BATCH, context=MODEL.context, seed=1000 + run.seed)
    windows = validation_windows(held_out, count=VALIDATION_WINDOWS, context=MODEL.context)
    validation = [part.to(device) for part in windows]
    # The first pass pays for thread pools and allocations, which belong to no optimizer.
    model.loss(*validation).backward()
    model.zero_grad()

    optimizer = OPTIMIZERS[run.optimizer].build(model, run.lr)
    scheduler = LambdaLR(optimizer, partial(schedule, steps=run.planned_steps))
    interval = max(1, run.planned_steps // VALIDATIONS)
    run.record(validate(model, validation))
    while not run.complete and not stop:
        tokens, targets = (part.to(device) for part in next(batches))
        with backends.trace() as served:
            started = clock(device)
            loss = model.loss(tokens, targets)
            loss.backward()
            differentiated = clock(device)
            optimizer.step()
            optimizer.zero_grad()
            finished = clock(device)
        scheduler.step()

        run.model_times.append(differentiated - started)
        run.optimizer_times.append(finished - differentiated)
        run.backends.update(served)
        if run.steps % interval == 0:
            run.record(validate(model, validation))
        show(run, loss.item())
    if run.curve[-1].step != run.steps:
        run.record(validate(model, validation))
    run.state_bytes = state_bytes(optimizer)
    return optimizer.explain() if hasattr(optimizer, "explain") else ""


@torch.no_grad()
def validate(model: LanguageModel, validation: list[torch.Tensor]) -> float:
    """Return the mean loss on the validation windows."""
    model.eval()
    loss = model.loss(*validation).item()
    model.train()
    return loss


def clock(device: torch.device) -> float:
    """Return the time in seconds at which the device has done all work given to it."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with one sentence and exit status 2."""

    def error(self, message: str) -> NoReturn:
        """Print the sentence and exit."""
        self.exit(2, f"{self.prog}: {message}\n")


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1.")
    return int(text)


def seed_number(text: str) -> int:
    """Parse a seed."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 2**32 - 1.")
    return int(text)


def optimizer_names(text: str) -> list[str]:
    """Parse names of `OPTIMIZERS`, separated by commas."""
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in OPTIMIZERS:
            raise argparse.ArgumentTypeError(
                f"unknown optimizer {name!r}; known are {', '.join(OPTIMIZERS)}."
            )
    return names


def usable_device(text: str) -> torch.device:
    """Parse a device that this machine has."""
    kind, _, index = text.partition(":")
    available = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if kind not in available or (index or "0") not in map(str, range(available[kind])):
        usable = ", ".join(kind for kind, count in available.items() if count)
        raise argparse.ArgumentTypeError(f"{text!r} is not a device of this machine, which has {usable}.")
    return torch.device(text)


def parser() -> Parser:
    """Return the parser of the command line."""
    result = Parser(
        prog="train_lm.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add(
        "--optimizers",
        type=optimizer_names,
        default=",".join(name for name in OPTIMIZERS if name != "kpop_seed"),
        metavar="NAMES",
        help=f"separated by commas, of {', '.join(OPTIMIZERS)} (default: %(default)s)",
    )
    add(
        "--kpop-mode",
        choices=("default", "seed"),
        default="default",
        help="seed: show KPOP with the seed article's literal schedule too",
    )
    add("--steps", type=positive, default=200, help="length of the schedule (default: %(default)s)")
    add("--seed", type=seed_number, default=0, help="of weights and data order (default: %(default)s)")
    add("--data", type=Path, metavar="FILE", help="text to train on (default: Python's language reference)")
    add("--device", type=usable_device, default="cpu", help="cpu, cuda, cuda:1, mps (default: %(default)s)")
    add(
        "--out",
        type=Path,
        default=Path(),
        metavar="DIRECTORY",
        help="where train_lm.json and train_lm.png go (default: here)",
    )
    return result


def describe(text: Text, device: torch.device, seed: int) -> dict:
    """Return what is trained on what: the facts that stand beside the runs in the JSON file."""
    return {
        "text": {
            "name": text.name,
            "bytes": len(text.data),
            "sha256": text.sha256,
            "train_bytes": text.train_bytes,
            "held_out_bytes": text.held_out_bytes,
        },
        "model": asdict(MODEL),
        "batch": BATCH,
        "seed": seed,
        "device": str(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison; return the exit status."""
    command_line = parser()
    options = command_line.parse_args(arguments)
    names = options.optimizers
    if options.kpop_mode == "seed" and "kpop_seed" not in names:
        names = [*names, "kpop_seed"]
    try:
        text = read_text(options.data) if options.data else python_reference()
        require_one_batch(text, batch=BATCH, context=MODEL.context)
        require_writable(options.out)
    except ValueError as error:
        command_line.error(str(error))

    console = Console(highlight=False, markup=False)
    facts = describe(text, options.device, options.seed)
    console.print(f"Text: {text.name}, {len(text.data):,} bytes, SHA-256 {text.sha256}", soft_wrap=True)
    runs: list[Run] = []
    with Interrupt() as stop:
        with progress_display(console) as show:
            for name in names:
                if stop:
                    break
                runs.append(start_run(name, steps=options.steps, seed=options.seed))
                explanation = train(runs[-1], text, options.device, show, stop)
                if explanation:
                    console.print(explanation, soft_wrap=True)
        json_path, png_path = write_report(runs, facts, options.out)
    console.print(comparison_table(runs), backend_table(runs))
    if BASELINE not in names:
        console.print("AdamW was not run, so there is no loss to compare with.")
    if stop:
        console.print(
            f"Interrupted: what was measured so far is in {json_path} and {png_path}.", soft_wrap=True
        )
        return INTERRUPTED
    console.print(f"Wrote {json_path} and {png_path}.", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
