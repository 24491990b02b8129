"""Oracles of the optimizers: one parameter, no batching, float64."""
