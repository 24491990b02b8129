"""Optimizers: drop-in ``torch.optim.Optimizer`` classes built on the package's operators."""

from ._base import state_bytes as state_bytes
from .kpop import KPOP as KPOP
