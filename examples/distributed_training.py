"""What both distributed examples share: arguments, each rank's part of a batch, the loop, and checkpoints."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from language_model import LanguageModel, ModelConfig
from text_data import python_reference, training_batches

MODEL = ModelConfig()
BATCH = 16
"""Windows in a batch of all ranks together."""


def arguments(description: str) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, help="resume from this directory if it exists; save to it")
    return parser.parse_args()


def start() -> torch.device:
    """Join the process group that torchrun describes and return this rank's device."""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("cuda:nccl,cpu:gloo", device_id=device)
        return device
    dist.init_process_group("gloo")
    return torch.device("cpu")


def train(
    model: nn.Module,
    forward: Callable[[Tensor], Tensor],
    optimizer: Optimizer,
    options: argparse.Namespace,
    device: torch.device,
) -> None:
    """Train, print the mean loss of all ranks now and then, and keep a checkpoint.

    Args:
        model: The model, for its checkpoint.
        forward: The model as it is called: returns the logits of tokens.
        optimizer: Its optimizer.
        options: The command line.
        device: Where to train.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(1, options.steps // 10)))
    training, _ = python_reference().split()
    batches = training_batches(training, batch=BATCH, context=MODEL.context, seed=1000 + options.seed)
    done = load(model, optimizer, scheduler, options.checkpoint) if options.checkpoint else 0
    for step in range(1, options.steps + 1):
        tokens, targets = (part.tensor_split(world)[rank].to(device) for part in next(batches))
        if step <= done:
            continue
        loss = cross_entropy(forward(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        if step % 20 == 0 or step == options.steps:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step}: loss {mean.item() / world:.4f}", flush=True)
    if options.checkpoint:
        state = state_of(model, optimizer, scheduler)
        dcp.save(state | {"steps": options.steps}, checkpoint_id=options.checkpoint)


def state_of(model: nn.Module, optimizer: Optimizer, scheduler: LambdaLR) -> dict:
    """Return everything that a checkpoint holds but the number of steps; all ranks must call this."""
    return {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
        "scheduler": scheduler.state_dict()["last_epoch"],
    }


def load(model: nn.Module, optimizer: Optimizer, scheduler: LambdaLR, path: Path) -> int:
    """Resume from a checkpoint of any number of ranks if there is one; return how many steps it has taken."""
    if not (path / ".metadata").exists():
        return 0
    state = state_of(model, optimizer, scheduler) | {"steps": 0}
    dcp.load(state, checkpoint_id=path)
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    scheduler.last_epoch = state["scheduler"]
    return state["steps"]


def seeded_model(seed: int) -> LanguageModel:
    """Return the model with the same weights on every rank."""
    torch.manual_seed(seed)
    return LanguageModel(MODEL)
