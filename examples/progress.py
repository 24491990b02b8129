"""Show where training stands: bars on a terminal, plain lines elsewhere; and stop it on request."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from report import Run, show_number

ShowProgress = Callable[[Run, float], None]


@contextmanager
def progress_display(console: Console) -> Iterator[ShowProgress]:
    """Provide a function that shows progress on a console.

    Args:
        console: Where to show it. When it is not a terminal, a line is printed for each validation.

    Yields:
        A function of the run and its latest training loss, to be called after every step.
    """
    if not console.is_terminal:
        yield lambda run, loss: _print_line(console, run, loss)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console) as progress:
        tasks = {}

        def show(run: Run, loss: float) -> None:
            if run.optimizer not in tasks:
                tasks[run.optimizer] = progress.add_task(run.label, total=run.planned_steps, loss=loss)
            progress.update(tasks[run.optimizer], completed=run.steps, loss=loss)

        yield show


def _print_line(console: Console, run: Run, loss: float) -> None:
    latest = run.curve[-1]
    if latest.step != run.steps:
        return
    left = run.seconds / run.steps * (run.planned_steps - run.steps)
    console.print(
        f"{run.label}: step {run.steps}/{run.planned_steps}, loss {loss:.3f}, "
        f"validation loss {show_number(latest.val_loss, '.3f')}, {left:.0f} s left",
        soft_wrap=True,
        highlight=False,
    )


class Interrupt:
    """Turn the first Ctrl-C into a request that is true from then on; a second one stops at once.

    A training step is then never cut in half, and what was measured before it stays consistent.
    """

    def __init__(self) -> None:
        self.requested = False

    def __bool__(self) -> bool:
        return self.requested

    def __enter__(self) -> "Interrupt":
        self._previous = signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def _request(self, _signal: int, _frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
