"""Triton kernels, run on CPU tensors by Triton's interpreter through their host launchers."""
