"""Measured choices between algorithms, as files that a bench command writes; nothing is tuned at run time."""

from .crossover import eigh_from as eigh_from
