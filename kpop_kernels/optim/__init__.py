"""Optimizers: drop-in ``torch.optim.Optimizer`` classes built on the package's operators."""

from ._base import state_bytes as state_bytes
from ._routing import rules_of as rules_of
from .kpop import KPOP as KPOP
from .muon import Muon as Muon
from .soap import SOAP as SOAP
