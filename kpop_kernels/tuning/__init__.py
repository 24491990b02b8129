"""How kernels are cut into programs: frozen configurations, each with one rule of validity."""

from .blockwise import BLOCKWISE as BLOCKWISE
from .blockwise import BlockwiseConfig as BlockwiseConfig
