"""Optimizers: drop-in ``torch.optim.Optimizer`` classes built on the package's operators."""

from ._base import state_bytes as state_bytes
from ._routing import rules_of as rules_of
from ._schedules import warmup_stable_decay as warmup_stable_decay
from .kpop import KPOP as KPOP
from .muon import Muon as Muon
from .online_kl_shampoo import OnlineKLShampoo as OnlineKLShampoo
from .online_kl_shampoo import spectral_mup_init_ as spectral_mup_init_
from .shampoo import Shampoo as Shampoo
from .soap import SOAP as SOAP
