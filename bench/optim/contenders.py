"""The optimizers that are compared: every one of this package, torch's, and those of installed peers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

import kpop_kernels.optim
from bench import peers

REFRESH_PERIOD = 10
"""Steps between two refreshes of a preconditioner, for all that have one."""

Build = Callable[[list[Tensor]], Optimizer]


@dataclass(frozen=True)
class Contender:
    """One optimizer.

    Attributes:
        name: Package and class.
        build: Makes it over parameters.
        ours: Whether it belongs to this package.
        slow_start: Whether its first step takes so long that quick runs leave it out.
    """

    name: str
    build: Build
    ours: bool = False
    slow_start: bool = False


def contenders() -> Iterator[Contender]:
    """Yield all that can take part here."""
    for name, cls in vars(kpop_kernels.optim).items():
        if isinstance(cls, type) and issubclass(cls, Optimizer):
            yield Contender(name, cls, ours=True)
    for name in ("KPOP", "SOAP"):
        yield Contender(f"{name} qr", partial(getattr(kpop_kernels.optim, name), method="qr"), ours=True)
    installed = peers.installed()
    yield from TORCH
    for module, group in PEERS.items():
        if module in installed:
            yield from group


def _peer(module: str, name: str, **hyperparameters: Any) -> Build:
    """Return a builder that imports a peer's optimizer when it is called."""

    def build(parameters: list[Tensor]) -> Optimizer:
        optimizer: Optimizer = getattr(peers.load(module), name)(parameters, **hyperparameters)
        return optimizer

    return build


def _pytorch_optimizer_muon(parameters: list[Tensor]) -> Optimizer:
    optimizer: Optimizer = peers.load("pytorch_optimizer").Muon([{"params": parameters, "use_muon": True}])
    return optimizer


def _heavyball_soap(parameters: list[Tensor]) -> Optimizer:
    """Compile without its search for the fastest of many kernels, which takes minutes."""
    vars(peers.load("heavyball.utils"))["compile_mode"] = "default"
    return _peer("heavyball", "SOAP", precondition_frequency=REFRESH_PERIOD)(parameters)


TORCH = (
    Contender("torch AdamW", torch.optim.AdamW),
    Contender("torch AdamW fused", lambda parameters: torch.optim.AdamW(parameters, fused=True)),
    Contender("torch Muon", torch.optim.Muon),
)

PEERS: dict[str, tuple[Contender, ...]] = {
    "pytorch_optimizer": (
        Contender(
            "pytorch_optimizer SOAP",
            _peer("pytorch_optimizer", "SOAP", precondition_frequency=REFRESH_PERIOD),
        ),
        Contender(
            "pytorch_optimizer Shampoo",
            _peer("pytorch_optimizer", "Shampoo", preconditioning_compute_steps=REFRESH_PERIOD),
        ),
        Contender("pytorch_optimizer Muon", _pytorch_optimizer_muon),
    ),
    "heavyball": (Contender("heavyball SOAP", _heavyball_soap, slow_start=True),),
    "bitsandbytes": (Contender("bitsandbytes AdamW8bit", _peer("bitsandbytes.optim", "AdamW8bit")),),
    "torchao": (Contender("torchao AdamW8bit", _peer("torchao.optim", "AdamW8bit"), slow_start=True),),
}
