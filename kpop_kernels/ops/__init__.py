"""The operators as functions: documented, with defaults, each one call to ``torch.ops.kpop``."""

from .gram import gram_ema_ as gram_ema_
from .inverse_root import InverseRootInfo as InverseRootInfo
from .inverse_root import inverse_root as inverse_root
from .inverse_root import inverse_root_foreach as inverse_root_foreach
from .kron import kron_adam_ as kron_adam_
from .kron import kron_rotate as kron_rotate
from .kron import rebase_moments_ as rebase_moments_
from .newton_schulz import newton_schulz as newton_schulz
from .newton_schulz import newton_schulz_foreach as newton_schulz_foreach
from .newton_schulz import zeropower_via_newtonschulz5 as zeropower_via_newtonschulz5
from .symmetric import symm_mm as symm_mm
from .symmetric import syrk as syrk
