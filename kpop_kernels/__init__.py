"""Fused kernels for the matrix work inside curvature-aware optimizers, and the optimizers built on them."""

from . import backends as backends
from .ops import InverseRootInfo as InverseRootInfo
from .ops import gram_ema_ as gram_ema_
from .ops import inverse_root as inverse_root
from .ops import inverse_root_foreach as inverse_root_foreach
from .ops import kron_adam_ as kron_adam_
from .ops import kron_rotate as kron_rotate
from .ops import newton_schulz as newton_schulz
from .ops import newton_schulz_foreach as newton_schulz_foreach
from .ops import rebase_moments_ as rebase_moments_
from .ops import symm_mm as symm_mm
from .ops import syrk as syrk
from .ops import zeropower_via_newtonschulz5 as zeropower_via_newtonschulz5

__version__ = "0.1.0"
