"""Operators for Apple GPUs: Metal sources that ``torch.mps.compile_shader`` compiles at first use."""
