"""CPU tensors between guard bands, and mutated copies of kernels."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from tests.emulation.guard_bands import GuardBands

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class GuardedTensors(GuardBands):
    """Guard bands for tensors: NaN around floating-point values, -1 around integers."""

    def tensor(self, name: str, values: Tensor) -> Tensor:
        """Return a contiguous copy of ``values`` between guard bands."""
        guarded = self.output(name, values.shape, values.dtype)
        return guarded.copy_(values)

    def output(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a tensor of poison between guard bands."""
        bits = _INTEGERS[dtype.itemsize]
        array = self.poisoned(name, tuple(shape), np.dtype(str(bits).removeprefix("torch.")))
        return torch.from_numpy(array).view(dtype)


def mutant(original: ModuleType, folder: Path, replacements: dict[str, str]) -> ModuleType:
    """Import a copy of a module with a bug planted in its text.

    Args:
        original: The module; the copy is called like it with ``_mutant`` behind, and belongs to its package.
        folder: Where the copy goes.
        replacements: What stands in the text exactly once, and what the copy has there.
    """
    text = Path(original.__file__).read_text()
    for old, new in replacements.items():
        if text.count(old) != 1:
            raise ValueError(
                f"{old!r} stands {text.count(old)} times in {original.__name__}, it must stand there once"
            )
        text = text.replace(old, new)
    name = f"{original.__name__}_mutant"
    file = folder / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
