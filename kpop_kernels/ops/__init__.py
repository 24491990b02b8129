"""The operators as functions: documented, with defaults, each one call to ``torch.ops.kpop``."""

from .gram import gram_ema_ as gram_ema_
from .kron import kron_adam_ as kron_adam_
from .kron import kron_rotate as kron_rotate
from .kron import rebase_moments_ as rebase_moments_
