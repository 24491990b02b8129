"""Choices made in advance: frozen launch configurations, and measured crossovers that a bench command writes."""

from .blockwise import BLOCKWISE as BLOCKWISE
from .blockwise import BlockwiseConfig as BlockwiseConfig
from .crossover import eigh_from as eigh_from
from .rotations import LARGE_TILES as LARGE_TILES
from .rotations import PASS as PASS
from .rotations import SMALL_TILES as SMALL_TILES
from .rotations import RotationConfig as RotationConfig
from .rotations import rotation_config as rotation_config
