"""Fused kernels for the matrix work inside curvature-aware optimizers, and the optimizers built on them."""

from . import backends as backends
from .ops import gram_ema_ as gram_ema_
from .ops import kron_adam_ as kron_adam_
from .ops import kron_rotate as kron_rotate
from .ops import rebase_moments_ as rebase_moments_

__version__ = "0.1.0"
