"""How a step sees parameters: here those of one process; `kpop_kernels.distributed` has those of many ranks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ._buckets import Work
from ._capture import Capture
from ._nonfinite import Finding, examine


class Exchange:
    """What lies between an optimizer and the ranks that hold its parameters; with a single process, nothing.

    An optimizer's rule is written for whole parameters in one process. For a parameter that is not whole here it
    is given a stand-in: the whole matrix, gathered for this step, or, if each element is updated for itself, the
    shard. `original` tells which parameter a stand-in stands for.
    """

    spans_ranks = False
    """Whether work and state are spread over ranks."""

    def gradients(self, groups: Sequence[dict[str, Any]]) -> list[tuple[Tensor, Tensor, dict[str, Any]]]:
        """Return the parameters that have a gradient on any rank, what of it is here, and their groups."""
        return [
            (parameter, parameter.grad, group)
            for group in groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]

    def examine(self, gradients: Sequence[Tensor], must_know: Sequence[bool]) -> list[Finding]:
        """Find out which gradients are finite and which are zero, on all ranks together."""
        return examine(gradients, must_know)

    def local(self, parameter: Tensor) -> Tensor:
        """Return what of a parameter is here, to write to."""
        return parameter

    def original(self, tensor: Tensor) -> Tensor:
        """Return the parameter that a tensor stands for; a parameter stands for itself."""
        return tensor

    def offset(self, tensor: Tensor) -> int:
        """Return the index, in the whole parameter, of the first element of what stands for it."""
        return 0

    def prototype(self, parameter: Tensor) -> Tensor | None:
        """Return a tensor of the shape, dtype and device for which a state is kept here; None if none is."""
        return parameter

    def sum_statistics(self, capture: Capture, parameters: Sequence[Tensor]) -> None:
        """Add up over ranks what was seen of the layers of these parameters; drop what was seen of others."""

    def update(self, work: Sequence[Work], rule: Callable[[Sequence[Work]], None]) -> None:
        """Apply an optimizer's rule to parameters and their gradients."""
        rule(work)

    def where(self, parameter: Tensor) -> dict[str, str]:
        """Return the columns of `explain` that say which ranks update a parameter."""
        return {}

    def shared_states(self, states: Mapping[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """Return the states of a state dict, by number of the parameter, as all ranks together save them."""
        return dict(states)

    def own_states(self, saved: Mapping[Tensor, Mapping[str, Any]]) -> dict[Tensor, dict[str, Any]]:
        """Return copies of what is kept here of the saved states of parameters."""
        return {
            parameter: {key: copy_to(parameter, key, value) for key, value in state.items()}
            for parameter, state in saved.items()
        }


def copy_to(parameter: Tensor, key: str, value: Any) -> Any:
    """Return a copy of a saved value on the parameter's device."""
    if key == "step":
        value = torch.as_tensor(value, dtype=torch.float32)
    return value.to(device=parameter.device, copy=True) if isinstance(value, Tensor) else value
