"""One step of whole optimizers on the matrices of two models."""
