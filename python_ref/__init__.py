"""The oracle: what every operator and optimizer computes, in plain float64, one readable page each.

Nothing here is fast and nothing here is shared with kpop_kernels, in either direction.
"""
