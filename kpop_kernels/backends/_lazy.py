"""Backends whose files are imported when one of their operators is first called."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def imported_when_called(package: str, files: Mapping[str, str]) -> dict[str, Callable[..., None]]:
    """Return a function for each operator; calling one imports the file of the package that implements it.

    Args:
        package: Name of the backend's package.
        files: The file of each operator.
    """
    return {op: _deferred(f"{package}.{file}", op) for op, file in files.items()}


def _deferred(module: str, op: str) -> Callable[..., None]:
    def run(*args: Any, **kwargs: Any) -> None:
        getattr(import_module(module), op)(*args, **kwargs)

    return run
