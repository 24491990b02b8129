"""The deep autoencoder on scikit-learn's bundled digits, on which optimizers are compared.

Layers 64-128-64-32-12-32-64-128-64 with tanh, logistic outputs, mean binary cross-entropy; pixels in
[0, 1], 1437 training and 360 validation images, batches of 256 drawn with replacement. Everything
but the optimizer is a function of the seed, so two optimizers see the same start and the same data.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

WIDTHS = (64, 128, 64, 32, 12, 32, 64, 128, 64)
TRAIN_IMAGES = 1437
BATCH_SIZE = 256
STEPS = 600
CURVE_INTERVAL = 10

MakeOptimizer = Callable[[nn.Module, Sequence[nn.Parameter], float], Optimizer]


@dataclass(frozen=True)
class Result:
    """What one training run reached.

    Attributes:
        train_sse: Squared reconstruction error per image, summed over pixels, on the training images.
        val_sse: The same on the validation images.
        curve: Validation error by number of steps taken: at 0, every `CURVE_INTERVAL`, and at the end.
    """

    train_sse: float
    val_sse: float
    curve: dict[int, float]


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Training and validation images, (1437, 64) and (360, 64), split by a fixed permutation."""
    images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images[order[:TRAIN_IMAGES]], images[order[TRAIN_IMAGES:]]


def autoencoder(seed: int) -> nn.Sequential:
    """The network with PyTorch's default initialization under `seed`; the global RNG is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(n, m) for n, m in pairwise(WIDTHS)]
    hidden = [module for layer in layers[:-1] for module in (layer, nn.Tanh())]
    return nn.Sequential(*hidden, layers[-1])


def rate_factor(step: int, steps: int) -> float:
    """Learning-rate factor: linear warm-up over 10 %, flat to 50 %, linear towards 0 but not below 2 %."""
    warmup, flat = 0.1 * steps, 0.5 * steps
    if step < warmup:
        return (step + 1) / warmup
    return min(1.0, max(0.02, (steps - step) / (steps - flat)))


@torch.no_grad()
def reconstruction_error(model: nn.Module, images: Tensor) -> float:
    """Squared error per image, summed over the 64 pixels."""
    return (model(images).sigmoid() - images).square().sum(dim=1).mean().item()


def train_autoencoder(
    make_optimizer: MakeOptimizer,
    seed: int,
    *,
    lr: float,
    steps: int = STEPS,
    aux_lr: float | None = 3e-3,
    stop_after: int | None = None,
) -> Result:
    """Train the autoencoder once.

    Args:
        make_optimizer: Called as `make_optimizer(model, parameters, lr)`. It may attach itself to the model.
        seed: Decides initial weights and the order of the data.
        lr: Peak learning rate of the optimizer under test.
        steps: Length of the schedule.
        aux_lr: Peak learning rate of the AdamW with betas (0.9, 0.95) that trains the biases, the tested
            optimizer getting the weight matrices only. None gives every parameter to the tested one.
        stop_after: Number of steps actually taken, if fewer than `steps`.

    Returns:
        Errors at the end of the run and the validation curve.
    """
    train, val = digits()
    model = autoencoder(seed)
    optimizers = _optimizers(make_optimizer, model, lr, aux_lr)
    schedulers = [LambdaLR(opt, lambda step: rate_factor(step, steps)) for opt in optimizers]
    batches = torch.Generator().manual_seed(1000 + seed)

    curve = {0: reconstruction_error(model, val)}
    last = steps if stop_after is None else stop_after
    for step in range(1, last + 1):
        x = train[torch.randint(len(train), (BATCH_SIZE,), generator=batches)]
        model.zero_grad()
        binary_cross_entropy_with_logits(model(x), x).backward()
        for stepper in (*optimizers, *schedulers):
            stepper.step()
        if step % CURVE_INTERVAL == 0 or step == last:
            model.eval()
            curve[step] = reconstruction_error(model, val)
            model.train()
    model.eval()
    return Result(reconstruction_error(model, train), curve[last], curve)


def _optimizers(
    make_optimizer: MakeOptimizer, model: nn.Module, lr: float, aux_lr: float | None
) -> list[Optimizer]:
    if aux_lr is None:
        return [make_optimizer(model, list(model.parameters()), lr)]
    matrices = [param for param in model.parameters() if param.ndim == 2]
    rest = [param for param in model.parameters() if param.ndim != 2]
    aux = AdamW(rest, lr=aux_lr, betas=(0.9, 0.95), weight_decay=0.0)
    return [make_optimizer(model, matrices, lr), aux]
