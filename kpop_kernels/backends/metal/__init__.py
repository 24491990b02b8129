"""Operators for Apple GPUs: Metal sources compiled by ``torch.mps.compile_shader`` when they are first used."""
