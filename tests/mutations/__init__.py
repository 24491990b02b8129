"""Faults that are planted one by one into the optimizers, and the check that must notice each."""
