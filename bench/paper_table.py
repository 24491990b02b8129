"""The memory that optimizers take, beside Table 3 of the Clean paper.

The table mixes precisions: its AdamW, SOAP and Muon keep moments in bfloat16, its Clean keeps float32. So the
bytes are counted from the states that the optimizers create, entry by entry, at the precision that the table
assumes for the entry; beside them is what the package's optimizers take as they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from kpop_kernels.optim import SOAP, Clean, Muon, QClean, rules_of, state_bytes

UNIT = 1000 * 2**20
"""Bytes of the table's "G"."""

ADAM_MOMENTS = frozenset({"exp_avg", "exp_avg_sq", "momentum_buffer"})


@dataclass(frozen=True)
class Llama:
    """Sizes of a LLaMA, with separate matrices for the embedding and the head."""

    name: str
    layers: int
    width: int
    hidden: int
    rank: int
    vocabulary: int = 32_000

    def build(self) -> nn.ModuleDict:
        """Return the parameters, on the meta device."""
        options: dict[str, Any] = {"bias": False, "device": "meta", "dtype": torch.bfloat16}
        d, h = self.width, self.hidden

        def layer() -> nn.ModuleDict:
            shapes = {"q": (d, d), "k": (d, d), "v": (d, d), "o": (d, d)}
            shapes |= {"gate": (d, h), "up": (d, h), "down": (h, d)}
            linears = {name: nn.Linear(*shape, **options) for name, shape in shapes.items()}
            return nn.ModuleDict(linears | {"attention_norm": norm(), "mlp_norm": norm()})

        def norm() -> nn.Module:
            return nn.RMSNorm(d, device="meta", dtype=torch.bfloat16)

        return nn.ModuleDict(
            {
                "embedding": nn.Embedding(self.vocabulary, d, device="meta", dtype=torch.bfloat16),
                "layers": nn.ModuleList(layer() for _ in range(self.layers)),
                "norm": norm(),
                "head": nn.Linear(d, self.vocabulary, **options),
            }
        )


MODELS = (Llama("350M", 24, 1024, 2736, rank=256), Llama("1.3B", 24, 2048, 5461, rank=512))


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        name: The optimizer.
        make: Builds it from a model and its sizes.
        published: "G" of the state for each of `MODELS`.
    """

    name: str
    make: Callable[[nn.Module, Llama], Optimizer]
    published: tuple[float, float]


def _named(cls: type[Optimizer], **options: Any) -> Callable[[nn.Module, Llama], Optimizer]:
    return lambda model, _: cls(model.named_parameters(), **options)


def _low_rank(cls: type[Optimizer]) -> Callable[[nn.Module, Llama], Optimizer]:
    def make(model: nn.Module, sizes: Llama) -> Optimizer:
        return cls(model.named_parameters(), rank=sizes.rank, max_precond_dim=8192)  # type: ignore[call-arg]

    return make


ROWS = (
    Row("AdamW", _named(AdamW), (1.40, 5.11)),
    Row("SOAP", _named(SOAP, max_precond_dim=4096), (7.64, 13.62)),
    Row("Muon", lambda model, _: Muon(model.named_parameters(), rules=rules_of(model)), (0.83, 2.80)),
    Row("Clean", _low_rank(Clean), (1.25, 4.48)),
    Row("QClean", _low_rank(QClean), (0.38, 1.28)),
)


def created(row: Row, sizes: Llama) -> Optimizer:
    """Return a row's optimizer with the states of a model."""
    model = sizes.build()
    optimizer = row.make(model, sizes)
    if isinstance(optimizer, AdamW):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    else:
        optimizer.init_state()  # type: ignore[attr-defined]
    return optimizer


def assumed_bytes(optimizer: Optimizer) -> int:
    """Return the bytes of the states at the table's precision: bfloat16 for moments that are not of `Clean`."""
    return sum(
        value.numel() * (2 if _in_bfloat16(state, key, value) else value.element_size())
        for state in optimizer.state.values()
        for key, value in state.items()
        if key != "step"
    )


def _in_bfloat16(state: Mapping[str, Any], key: str, value: Tensor) -> bool:
    return key in ADAM_MOMENTS and "eigvals_L" not in state and value.is_floating_point()


def table() -> str:
    """Return the table as Markdown."""
    header = ["optimizer"]
    for sizes in MODELS:
        header += [f"{sizes.name} published", f"{sizes.name} at its precision", f"{sizes.name} as it is"]
    lines = [header, ["---"] * len(header)]
    for row in ROWS:
        line = [row.name]
        for sizes, published in zip(MODELS, row.published, strict=True):
            optimizer = created(row, sizes)
            counts = assumed_bytes(optimizer), state_bytes(optimizer)
            line += [f"{published:.2f}", *(f"{count / UNIT:.3f}" for count in counts)]
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    """Print the table, in units of 1000 MiB."""
    print(table())
    return 0
