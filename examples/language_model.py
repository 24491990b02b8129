"""A small Llama-style language model over bytes: RMSNorm, rotary attention, SwiGLU."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a `LanguageModel`.

    Attributes:
        vocabulary: Number of token values; 256 for bytes.
        width: Features of the residual stream.
        blocks: Number of transformer blocks.
        heads: Attention heads; divides `width` into an even number of features.
        hidden: Features inside the SwiGLU layer.
        context: Longest sequence, in tokens.
    """

    vocabulary: int = 256
    width: int = 96
    blocks: int = 2
    heads: int = 4
    hidden: int = 256
    context: int = 64


class RotaryAttention(nn.Module):
    """Causal self-attention whose queries and keys are rotated by an angle proportional to position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.q = nn.Linear(config.width, config.width, bias=False)
        self.k = nn.Linear(config.width, config.width, bias=False)
        self.v = nn.Linear(config.width, config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

        half = config.width // config.heads // 2
        frequency = 10000.0 ** (-torch.arange(half) / half)
        angle = torch.outer(torch.arange(config.context), frequency)  # (context, half)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:  # (batch, time, width) -> (batch, time, width)
        """Mix each position with the positions before it."""
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        mixed = F.scaled_dot_product_attention(self._rotate(q), self._rotate(k), v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))

    def _rotate(self, x: Tensor) -> Tensor:  # (batch, heads, time, features)
        time = x.shape[-2]
        cos, sin = self.cos[:time], self.sin[:time]
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class SwiGLU(nn.Module):
    """Feed-forward layer down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to the last dimension."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and feed-forward, each normalized first and added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=1e-6)
        self.attention = RotaryAttention(config)
        self.feed_forward_norm = nn.RMSNorm(config.width, eps=1e-6)
        self.feed_forward = SwiGLU(config)

    def forward(self, x: Tensor) -> Tensor:
        """Return the residual stream after this block."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class LanguageModel(nn.Module):
    """Predict each next token of a sequence.

    Args:
        config: Shape of the model.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.blocks)))
        self.norm = nn.RMSNorm(config.width, eps=1e-6)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self._initialize(config)

    def forward(self, tokens: Tensor) -> Tensor:  # (batch, time) -> (batch, time, vocabulary)
        """Return the logits of the token that follows each position."""
        return self.head(self.norm(self.blocks(self.embedding(tokens))))

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of `targets`, in nats."""
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())

    def _initialize(self, config: ModelConfig) -> None:
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
            # Each block adds twice to the residual stream; its variance should not grow with depth.
            if name.endswith(("attention.out.weight", "feed_forward.down.weight")):
                parameter.data.mul_((2 * config.blocks) ** -0.5)
