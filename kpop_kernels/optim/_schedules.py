"""Learning-rate schedules of the optimizers' sources."""

from dataclasses import dataclass

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


@dataclass(frozen=True)
class WarmupStableDecay:
    """Factor of the learning rate by step: rises linearly, stays at 1, falls linearly.

    Attributes:
        total_steps: Length of training.
        warmup_steps: Steps of the rise; step t < warmup_steps has the factor (t + 1) / warmup_steps.
        decay_ratio: Part of training, at its end, over which the factor falls.
        min_lr_factor: Factor at the end and after it.
    """

    total_steps: int
    warmup_steps: int
    decay_ratio: float
    min_lr_factor: float

    def __call__(self, step: int) -> float:
        """Return the factor of a step, counted from 0."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        start = (1 - self.decay_ratio) * self.total_steps
        if step <= start:
            return 1.0
        fallen = min(1.0, (step - start) / (self.total_steps - start))
        return 1 - fallen * (1 - self.min_lr_factor)


def warmup_stable_decay(
    optimizer: Optimizer,
    total_steps: int,
    *,
    warmup_steps: int = 250,
    decay_ratio: float = 0.7319,
    min_lr_factor: float = 0.0,
) -> LambdaLR:
    """Return the schedule of Online KL Shampoo: linear warm-up, constant, linear decay.

    Args:
        optimizer: Its groups' learning rates are the peaks.
        total_steps: Length of training.
        warmup_steps: Steps of the warm-up.
        decay_ratio: Part of training, at its end, over which the rate falls.
        min_lr_factor: The last rate, relative to the peak.

    Raises:
        ValueError: total_steps or warmup_steps is negative, or a ratio is outside [0, 1].
    """
    if total_steps < 1 or warmup_steps < 0:
        raise ValueError(
            f"warmup_stable_decay: total_steps is {total_steps} and warmup_steps {warmup_steps}, "
            "they must be at least 1 and 0"
        )
    for name, value in (("decay_ratio", decay_ratio), ("min_lr_factor", min_lr_factor)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"warmup_stable_decay: {name} is {value}, it must be between 0 and 1")
    return LambdaLR(optimizer, WarmupStableDecay(total_steps, warmup_steps, decay_ratio, min_lr_factor))
