"""Choices made in advance: frozen launch configurations, and measured crossovers that a bench command writes."""

from .blockwise import BLOCKWISE as BLOCKWISE
from .blockwise import BLOCKWISE_OF_ITEMS as BLOCKWISE_OF_ITEMS
from .blockwise import BlockwiseConfig as BlockwiseConfig
from .crossover import ANY_STEPS as ANY_STEPS
from .crossover import most_steps as most_steps
from .products import LARGE as LARGE
from .products import LARGE_IN_REGISTERS as LARGE_IN_REGISTERS
from .products import SMALL as SMALL
from .products import ProductConfig as ProductConfig
from .products import product_config as product_config
from .rotations import LARGE_TILES as LARGE_TILES
from .rotations import PASS as PASS
from .rotations import ROWS_OF_256 as ROWS_OF_256
from .rotations import SMALL_TILES as SMALL_TILES
from .rotations import RotationConfig as RotationConfig
from .rotations import rotation_config as rotation_config
