"""The packages this one is compared with: which are installed, and how they are loaded.

None is imported before it is asked for, so the benchmark runs without them; those that are not installed are named
in every report. ``make bench-peers`` installs all of them in an environment of their own.
"""

import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

PEERS = {
    "bitsandbytes": "bitsandbytes",
    "torchao": "torchao",
    "pytorch_optimizer": "pytorch-optimizer",
    "heavyball": "heavyball",
    "gram_newton_schulz": "gram-newton-schulz",
}
"""Module of each peer with the name of its distribution."""


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if it is not there."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def installed() -> dict[str, str]:
    """Return the installed peers with their versions."""
    versions = {module: installed_version(distribution) for module, distribution in PEERS.items()}
    return {module: found for module, found in versions.items() if found is not None}


def absent() -> list[str]:
    """Return the peers that are not installed."""
    return [module for module in PEERS if module not in installed()]


def load(module: str) -> ModuleType:
    """Import a module of a peer; what peers warn about at import is theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(module)
