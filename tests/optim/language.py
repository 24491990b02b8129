"""The small language model on Python's own documentation, on which `make quality` compares optimizers.

Characters of `pydoc_data.topics`, the last tenth held out; width 96, 2 pre-norm blocks of 4 heads, 64 positions,
batches of 16, 400 steps. The optimizer under test has the matrices in the blocks; AdamW at a fixed rate has
embeddings, head, norms and biases. Everything but the optimizer is a function of the seed.
"""

from dataclasses import dataclass
from functools import cache
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from tests.optim.problems import MakeOptimizer, rate_factor

WIDTH, HEADS, BLOCKS, CONTEXT, BATCH, STEPS = 96, 4, 2, 64, 16, 400
VALIDATION_WINDOWS = 64


@dataclass(frozen=True)
class LanguageResult:
    """What a run reached: the mean loss on the validation windows, in nats a character."""

    val_loss: float


@cache
def text() -> tuple[Tensor, Tensor, int]:
    """Training characters, held-out characters, and the number of different ones."""
    characters = "".join(topics[name] for name in sorted(topics))
    symbols = {symbol: i for i, symbol in enumerate(sorted(set(characters)))}
    codes = torch.tensor([symbols[symbol] for symbol in characters])
    split = len(codes) * 9 // 10
    return codes[:split], codes[split:], len(symbols)


class Block(nn.Module):
    """Attention and a GELU layer, each after a norm and beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return what goes on to the next block, (batch, positions, width)."""
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class CharacterModel(nn.Module):
    """Logits of the next character at every position."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(symbols, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        nn.init.normal_(self.embed.weight, 0, 0.02)
        nn.init.normal_(self.positions.weight, 0, 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, symbols, bias=False)

    def loss(self, windows: Tensor) -> Tensor:
        """Return the mean loss of windows (batch, positions + 1)."""
        inputs, targets = windows[:, :-1], windows[:, 1:]
        x = self.embed(inputs) + self.positions.weight[: inputs.shape[1]]
        return F.cross_entropy(self.head(self.norm(self.blocks(x))).flatten(0, 1), targets.flatten())


def windows(codes: Tensor, starts: Tensor) -> Tensor:
    """Return windows of `CONTEXT` + 1 characters."""
    return codes[starts[:, None] + torch.arange(CONTEXT + 1)]


def train_language_model(
    make_optimizer: MakeOptimizer, seed: int, *, lr: float, stop_after: int | None = None
) -> LanguageResult:
    """Train the model once; arguments are those of `train_autoencoder`."""
    train, held_out, symbols = text()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = CharacterModel(symbols)
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = set(matrices)
    rest = [p for p in model.parameters() if p not in chosen]
    optimizers = (
        make_optimizer(model, matrices, lr),
        AdamW(rest, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0),
    )
    schedulers = [LambdaLR(o, lambda step: rate_factor(step, STEPS)) for o in optimizers]
    order = torch.Generator().manual_seed(1000 + seed)
    for _ in range(STEPS if stop_after is None else stop_after):
        starts = torch.randint(len(train) - CONTEXT, (BATCH,), generator=order)
        model.zero_grad()
        model.loss(windows(train, starts)).backward()
        for stepper in (*optimizers, *schedulers):
            stepper.step()
    starts = torch.linspace(0, len(held_out) - CONTEXT - 1, VALIDATION_WINDOWS).long()
    model.eval()
    with torch.no_grad():
        return LanguageResult(model.loss(windows(held_out, starts)).item())
