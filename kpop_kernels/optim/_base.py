"""What all optimizers of this package share: torch.optim's conventions, kept to the letter."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class MatrixOptimizer(Optimizer, ABC):
    """Base of the optimizers: one update rule a parameter, everything else as torch.optim does it.

    Beyond torch.optim:

    - State keeps its own dtype and bits through `load_state_dict`, and is copied, never aliased.
    - A parameter whose gradient holds NaN or Inf is left as it is, its state too; `skipped` counts such cases.
    - All-zero gradients before the first other one only decay the parameter: they create state but do not count
      as a step, so that a checkpoint library's dummy step changes nothing.

    Subclasses implement `_validate`, `_new_state` and `_update`.
    """

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._reset_transients()
        super().__init__(params, defaults)

    @property
    def skipped(self) -> int:
        """Number of parameter updates left out because the gradient was not finite."""
        return self._skipped

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its hyper-parameters are checked before anything changes."""
        if isinstance(param_group, dict):
            self._validate(self.defaults | param_group)
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step.

        Args:
            closure: Reevaluates the model and returns the loss.

        Returns:
            What the closure returned, or None.

        Raises:
            RuntimeError: A gradient is sparse or complex.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        pending = [
            (parameter, parameter.grad, group)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        for _, grad, _ in pending:
            self._refuse_gradient(grad)
        finite = _host_flags([torch.isfinite(grad).all() for _, grad, _ in pending])
        self._note_started([(parameter, grad) for parameter, grad, _ in pending])
        for (parameter, grad, group), is_finite in zip(pending, finite, strict=True):
            if is_finite:
                self._step_parameter(parameter, grad, group)
            else:
                self._skip(parameter)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state dict; state keeps the dtypes and bits it was saved with.

        Args:
            state_dict: What `state_dict` returned. Not modified, and no tensor of it is kept.

        Raises:
            ValueError: The groups do not fit.
        """
        loaded: dict[str, Any] = {}
        pre = self.register_load_state_dict_pre_hook(lambda _, final: loaded.update(final))
        post = self.register_load_state_dict_post_hook(lambda _: self._restore(loaded), prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            pre.remove()
            post.remove()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        if "_skipped" not in self.__dict__:
            self._reset_transients()

    @abstractmethod
    def _validate(self, group: dict[str, Any]) -> None:
        """Raise ValueError for hyper-parameters out of range."""

    @abstractmethod
    def _new_state(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a parameter before its first step, without ``step``."""

    @abstractmethod
    def _update(self, parameter: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Update a parameter and its state; ``state["step"]`` already counts this step."""

    def _skip(self, parameter: Tensor) -> None:
        """Note that a parameter was left alone for its gradient."""
        self._skipped += 1

    def _reset_transients(self) -> None:
        """Set what is neither saved nor copied: parameters known to have had a non-zero gradient, counters."""
        self._started: set[int] = set()
        self._skipped = 0

    def _step_parameter(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state.update(self._new_state(parameter, group))
        if id(parameter) not in self._started:
            if group["weight_decay"]:
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
            return
        state["step"] += 1
        self._update(parameter, grad, state, group)

    def _note_started(self, pending: list[tuple[Tensor, Tensor]]) -> None:
        """Find the parameters that have now had a gradient other than zero; asks the device only for new ones."""
        unknown = [(parameter, grad) for parameter, grad in pending if id(parameter) not in self._started]
        nonzero = _host_flags([grad.count_nonzero() > 0 for _, grad in unknown])
        for (parameter, _), moves in zip(unknown, nonzero, strict=True):
            if moves or (self.state.get(parameter) and self.state[parameter]["step"] > 0):
                self._started.add(id(parameter))

    def _refuse_gradient(self, grad: Tensor) -> None:
        name = type(self).__name__
        if grad.layout != torch.strided:
            raise RuntimeError(
                f"{name} does not support sparse gradients; use torch.optim.SparseAdam for those"
            )
        if grad.is_complex():
            raise RuntimeError(f"{name} does not support complex parameters; view them as real pairs")

    def _restore(self, loaded: dict[str, Any]) -> None:
        """Replace the state that torch cast to the parameters' dtypes by copies of what was saved."""
        saved_ids = [index for group in loaded["param_groups"] for index in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(saved_ids, parameters, strict=True):
            if index in loaded["state"]:
                saved = loaded["state"][index]
                self.state[parameter] = {key: _copy_to(parameter, key, value) for key, value in saved.items()}
        self._started.clear()


def state_bytes(optimizer: Optimizer) -> int:
    """Return the bytes that an optimizer's state tensors take."""
    tensors = (
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)
    )
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def require_nonnegative(owner: str, **values: Any) -> None:
    """Raise ValueError for a negative hyper-parameter, or a tensor of more than one element."""
    for name, value in values.items():
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"{owner}: Tensor {name} must be 1-element, it has {value.numel()} elements")
        if not value >= 0.0:
            raise ValueError(f"{owner}: {name} is {value}, it must not be negative")


def require_fractions(owner: str, name: str, values: Iterable[float]) -> None:
    """Raise ValueError for decays outside 0 <= value < 1."""
    for value in values:
        if not 0.0 <= value < 1.0:
            raise ValueError(f"{owner}: {name} holds {value}, it must be at least 0 and below 1")


def _copy_to(parameter: Tensor, key: str, value: Any) -> Any:
    """Return a copy of a saved value on the parameter's device; the step stays where it was saved."""
    if key == "step":
        return torch.as_tensor(value, dtype=torch.float32).clone()
    return value.to(device=parameter.device, copy=True) if isinstance(value, Tensor) else value


def _host_flags(flags: list[Tensor]) -> list[bool]:
    """Bring flags to the host, one transfer a device."""
    devices = {flag.device for flag in flags}
    if len(devices) <= 1:
        return torch.stack(flags).tolist() if flags else []
    return [bool(flag) for flag in flags]
