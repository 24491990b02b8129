"""Fit a small linear map with KPOP: the shortest program that uses it.

The target is exactly linear, so the loss must vanish; the program fails when it does not.
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

from kpop_kernels.optim import KPOP

BATCH, INPUTS, OUTPUTS = 32, 10, 5
STEPS = 500
TARGET = 1e-4


def fit() -> list[float]:
    """Return the loss before each of the steps, and after the last."""
    model = nn.Linear(INPUTS, OUTPUTS)

    torch.manual_seed(42)
    X = torch.randn(BATCH, INPUTS)
    true_W = torch.randn(OUTPUTS, INPUTS)
    true_b = torch.randn(OUTPUTS)
    Y = X @ true_W.T + true_b

    nn.init.normal_(model.weight)
    nn.init.zeros_(model.bias)

    optimizer = KPOP(model.parameters(), lr=2e-2)
    optimizer.attach(model)
    losses = []
    for _ in range(STEPS):
        loss = F.mse_loss(model(X), Y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    with torch.no_grad():
        losses.append(F.mse_loss(model(X), Y).item())
    return losses


def main() -> int:
    """Print the loss every 50 steps; return 0 when it ends below the target, else 1."""
    losses = fit()
    for step in range(0, STEPS + 1, 50):
        print(f"step {step:3d}  loss {losses[step]:.2e}")
    return 0 if losses[-1] < TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
