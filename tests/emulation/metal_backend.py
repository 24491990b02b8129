"""Puts the Metal emulation behind the launchers of the Metal backend, and bands around their tensors."""

import inspect
import math
import types
from collections.abc import Callable, Collection, Mapping, Sequence

import pytest
import torch

from kpop_kernels import backends
from kpop_kernels.backends import metal
from kpop_kernels.backends.metal import _shader
from tests.emulation.metal_emulator import ShaderLibrary, compile_shader, find_compiler
from tests.emulation.tools import require_tool
from tests.guards import bits
from tests.ops.launch import Launcher

_BAND_BYTES = 512


def require_clang(config: pytest.Config) -> None:
    """Skip or fail the test when no compiler for the emulation is installed."""
    require_tool(config, "clang++ 17 or newer", find_compiler() is not None)


class EmulatedCompiler:
    """Stands in for ``torch.mps.compile_shader``. ``edit`` changes the source first, to plant a bug."""

    def __init__(self, mode: str = "exact", order: str = "forward", edit: Callable[[str], str] = str):
        self._mode, self._order, self._edit = mode, order, edit
        self._libraries: list[ShaderLibrary] = []

    def __call__(self, source: str) -> ShaderLibrary:
        library = compile_shader(self._edit(source), mode=self._mode, order=self._order)
        self._libraries.append(library)
        return library

    @property
    def launches(self) -> list[str]:
        """The names of the kernels that ran."""
        return [name for library in self._libraries for name in library.launches]


def emulate(monkeypatch: pytest.MonkeyPatch, **choices: object) -> EmulatedCompiler:
    """Let the Metal launchers run on the emulation until the test ends."""
    compiler = EmulatedCompiler(**choices)
    monkeypatch.setattr(_shader, "compile_shader", compiler)
    return compiler


def serve_metal(monkeypatch: pytest.MonkeyPatch, **choices: object) -> EmulatedCompiler:
    """Let the Metal backend serve CPU tensors, on the emulation, until the test ends."""
    monkeypatch.setattr(metal, "absent_because", lambda: None)
    monkeypatch.setattr(metal, "DEVICES", ("cpu",))
    monkeypatch.setitem(backends._BACKENDS, "metal", backends.Backend("metal"))
    return emulate(monkeypatch, **choices)


def run_guarded(
    op: str, tensors: Mapping[str, torch.Tensor], written: Collection[str] = (), **scalars: object
) -> tuple[torch.Tensor, ...]:
    """Run an operator of the Metal backend and return its results and what it wrote.

    Arguments and results lie between bands; arguments that are not written must hold the bits they held.
    """
    bands = Bands()
    copies = {name: bands.copy(tensor) for name, tensor in tensors.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty", bands.empty)
        result = Launcher(op, "metal")(*copies.values(), **scalars)
    assert bands.intact()
    for name, copy in copies.items():
        assert name in written or torch.equal(bits(copy), bits(tensors[name].contiguous())), name
    results = () if result is None else result if isinstance(result, tuple) else (result,)
    return (*results, *(copies[name] for name in written))


class Bands:
    """Tensors that lie between two bands of NaN, or of 0x55 for integers, which nothing may read or write."""

    def __init__(self) -> None:
        self._storages: list[tuple[torch.Tensor, torch.Tensor, int]] = []

    def empty(
        self, shape: int | Sequence[int], *, dtype: torch.dtype, device: torch.device | None = None
    ) -> torch.Tensor:
        """Return a contiguous tensor filled like its bands; the signature is that of ``torch.empty``."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        band, size = _BAND_BYTES // dtype.itemsize, math.prod(shape)
        poison = math.nan if dtype.is_floating_point else 0x55
        storage = torch.full((size + 2 * band,), poison, dtype=dtype, device=device)
        self._storages.append((storage, storage.clone(), size * dtype.itemsize))
        return storage[band : band + size].view(shape)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor between bands."""
        return self.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)

    def intact(self) -> bool:
        """Return whether every band still holds what it was filled with."""
        return all(
            torch.equal(now.view(torch.uint8)[part], then.view(torch.uint8)[part])
            for now, then, size in self._storages
            for part in (slice(0, _BAND_BYTES), slice(_BAND_BYTES + size, None))
        )


def replace_once(text: str, old: str, new: str) -> str:
    """Plant a bug: ``old`` must be there exactly once, or the bug would not be planted."""
    if text.count(old) != 1:
        # No AssertionError: that is what a test that plants a bug waits for.
        raise ValueError(f"{old!r} occurs {text.count(old)} times")
    return text.replace(old, new)


def mutated(module: types.ModuleType, old: str, new: str) -> types.ModuleType:
    """Return a copy of a module whose source has one text replaced."""
    source = replace_once(inspect.getsource(module), old, new)
    copy = types.ModuleType(f"{module.__name__}_mutated")
    copy.__package__ = module.__package__
    exec(compile(source, module.__file__, "exec"), copy.__dict__)
    return copy
