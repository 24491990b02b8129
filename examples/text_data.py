"""A text as bytes: random training windows, and fixed windows of a part that is never trained on."""

import hashlib
import pydoc_data.topics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

HELD_OUT_FRACTION = 0.1


@dataclass(frozen=True)
class Text:
    """A named text, split once into a training part and a held-out one.

    Attributes:
        name: Where the text comes from.
        data: The whole text as bytes.
    """

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        """Hexadecimal SHA-256 of the whole text."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def held_out_bytes(self) -> int:
        """Length of the held-out part."""
        return int(len(self.data) * HELD_OUT_FRACTION)

    @property
    def train_bytes(self) -> int:
        """Length of the training part."""
        return len(self.data) - self.held_out_bytes

    def split(self) -> tuple[Tensor, Tensor]:
        """Return the training part and the held-out end as uint8 tokens."""
        tokens = torch.frombuffer(bytearray(self.data), dtype=torch.uint8)
        return tokens[: self.train_bytes], tokens[self.train_bytes :]


def python_reference() -> Text:
    """Return the language reference every CPython carries; its content depends on the Python version."""
    topics = pydoc_data.topics.topics
    joined = "\n".join(topics[key] for key in sorted(topics))
    return Text("pydoc_data.topics", joined.encode())


def read_text(path: Path) -> Text:
    """Return the bytes of a file.

    Raises:
        ValueError: The file cannot be read; the message says why.
    """
    try:
        return Text(path.name, path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}.") from error


def require_one_batch(text: Text, *, batch: int, context: int) -> None:
    """Check that a text fills one training batch and one validation window.

    Raises:
        ValueError: The text is too short; the message says how much it lacks.
    """
    # The last position of a window has its target in the byte after the window.
    needs_train, needs_held_out = batch * context + 1, context + 1
    if text.train_bytes < needs_train or text.held_out_bytes < needs_held_out:
        raise ValueError(
            f"{text.name} is too short for one batch: it has {text.train_bytes} bytes to train on and "
            f"{text.held_out_bytes} held out, and needs {needs_train} and {needs_held_out}."
        )


def training_batches(
    tokens: Tensor, *, batch: int, context: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield endless (inputs, targets) of random windows, each (batch, context)."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(tokens) - context, (batch,), generator=generator)
        yield _windows(tokens, starts, context)


def validation_windows(tokens: Tensor, *, count: int, context: int) -> tuple[Tensor, Tensor]:
    """Return (inputs, targets) of at most `count` windows, spread evenly and not overlapping."""
    count = min(count, (len(tokens) - 1) // context)
    starts = torch.linspace(0, len(tokens) - context - 1, count, dtype=torch.float64).long()
    return _windows(tokens, starts, context)


def _windows(tokens: Tensor, starts: Tensor, context: int) -> tuple[Tensor, Tensor]:
    index = starts[:, None] + torch.arange(context)
    return tokens[index].long(), tokens[index + 1].long()
