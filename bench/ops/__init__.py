"""One module for each operator or family: ``bench_<name>.py`` has OPS, what it covers, and cases()."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from bench.case import Case

PREFIX = "bench_"
NAMES = tuple(
    sorted(m.name.removeprefix(PREFIX) for m in iter_modules(__path__) if m.name.startswith(PREFIX))
)


def module(name: str) -> ModuleType:
    """Return the module of a name of `NAMES`."""
    return import_module(f"{__name__}.{PREFIX}{name}")


def cases(names: tuple[str, ...], device: str, *, quick: bool) -> Iterator[Case]:
    """Yield the cases of some modules.

    Args:
        names: Of `NAMES`.
        device: torch's name for the kind of device.
        quick: Leave out what takes long.
    """
    for name in names:
        yield from module(name).cases(device, quick=quick)
