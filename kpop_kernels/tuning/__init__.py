"""Choices made in advance: frozen launch configurations, and measured crossovers that a bench command writes."""

from .blockwise import BLOCKWISE as BLOCKWISE
from .blockwise import BlockwiseConfig as BlockwiseConfig
from .crossover import eigh_from as eigh_from
