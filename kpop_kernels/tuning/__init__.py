"""How kernels are cut into programs, and measured choices between algorithms; nothing is tuned at run time."""

from .blockwise import BLOCKWISE as BLOCKWISE
from .blockwise import BlockwiseConfig as BlockwiseConfig
from .crossover import eigh_from as eigh_from
