"""What all optimizers of this package share: torch.optim's conventions, kept to the letter."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.optim import Optimizer

from ._buckets import Work, buckets
from ._checks import require_choices, require_fractions, require_nonnegative
from ._exchange import Exchange
from ._nonfinite import Finding
from ._refresh import refresh_due
from ._routing import Rule, as_matrices, give_back, route, shaped, shaped_like, treatment_of, validate_rules
from ._updates import adam_steps_


class MatrixOptimizer(Optimizer, ABC):
    """Base of the optimizers: one update rule a parameter, everything else as torch.optim does it.

    Beyond torch.optim:

    - State keeps its own dtype and bits through `load_state_dict`, and is copied, never aliased.
    - A gradient that holds NaN or Inf leaves its parameter and state as they are (``on_nonfinite="skip"``;
      `skipped` counts such cases), or refuses the whole step ("raise"). "skip" is decided where the gradient is:
      a step waits for an accelerator only when a parameter starts or renews its bases or roots, or for a learning
      rate that is a tensor there and divides another. "raise" waits at the beginning of every step.
    - torch.compile leaves steps as they are: the work is in operators that it does not look into, and what the
      host decides (who renews now) would be compiled anew each time it changes.
    - All-zero gradients before the first other one only decay the parameter: they create state but do not count
      as a step, so that a checkpoint library's dummy step changes nothing.

    Subclasses implement `_validate`, `_new_state` and `_update`. All have the hyper-parameters lr, betas, eps,
    weight_decay, maximize, rules and on_nonfinite, which are checked here.
    """

    _shortest_side = 2
    """Shortest side that the method treats; one of length 1 has nothing to rotate, but may be scaled."""

    _counts: dict[int, int]
    """The number of each started parameter's step; a device may have taken fewer, having left some out."""
    _places: dict[int, tuple[int, str]]
    _exchange: Exchange
    _skipped: int | Tensor
    _failed: int | Tensor

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._reset_transients()
        super().__init__(params, defaults)

    @property
    def skipped(self) -> int:
        """Number of parameter updates left out because the gradient was not finite."""
        return int(self._skipped)

    @property
    def failed_refreshes(self) -> int:
        """Number of bases or roots that could not be renewed, so that the previous one was kept."""
        return int(self._failed)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its hyper-parameters are checked before anything changes."""
        if isinstance(param_group, dict):
            group = self.defaults | param_group
            name = type(self).__name__
            require_nonnegative(name, **{key: group[key] for key in ("lr", "eps", "weight_decay")})
            require_fractions(name, betas=group["betas"])
            require_choices(name, group, on_nonfinite=("skip", "raise"))
            validate_rules(name, group["rules"])
            self._validate(group)
        super().add_param_group(param_group)
        self._places.clear()
        self._connect()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step.

        Args:
            closure: Reevaluates the model and returns the loss.

        Returns:
            What the closure returned, or None.

        Raises:
            RuntimeError: A gradient is sparse or complex, or not finite in a group with
                ``on_nonfinite="raise"``; nothing has changed then.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step()
        return loss

    @_disable_dynamo
    def _step(self) -> None:
        """Take a step with the gradients that are there."""
        pending = self._exchange.gradients(self.param_groups)
        for _, grad, _ in pending:
            self._refuse_gradient(grad)
        must_know = [group["on_nonfinite"] == "raise" or id(p) not in self._counts for p, _, group in pending]
        findings = self._exchange.examine([grad for _, grad, _ in pending], must_know)
        for (parameter, _, group), finding in zip(pending, findings, strict=True):
            if finding.finite is False and group["on_nonfinite"] == "raise":
                raise RuntimeError(
                    f"{type(self).__name__}: the gradient of {self._name(parameter)} holds NaN or Inf, "
                    "which on_nonfinite='raise' forbids"
                )
        ready = []
        for (parameter, grad, group), finding in zip(pending, findings, strict=True):
            if finding.finite is False:
                self._skip(parameter)
            elif self._begin(parameter, group, finding):
                ready.append(Work(parameter, grad, self.state[parameter], group, finding.found_inf))
        self._count(ready)
        self._prepare([item.parameter for item in ready])
        self._exchange.update(ready, self._update)

    def init_state(self) -> None:
        """Create the states that the first step would create, where there are none.

        Needs no gradients, and works for parameters on the meta device: `state_bytes` then tells what a model's
        optimizer will take.
        """
        for group in self.param_groups:
            for parameter in group["params"]:
                if not self.state[parameter]:
                    self._create_state(parameter, group)

    def explain(self) -> str:
        """Return a table: each parameter, how it is treated, and why."""
        rows = [
            {"parameter": self._name(parameter), "shape": str(tuple(parameter.shape))}
            | self._explanation(parameter, group)
            | self._exchange.where(parameter)
            for group in self.param_groups
            for parameter in group["params"]
        ]
        header = {column: column for column in rows[0]}
        widths = {column: max(len(row[column]) for row in (header, *rows)) for column in header}
        return "\n".join(
            "  ".join(cell.ljust(widths[column]) for column, cell in row.items()).rstrip()
            for row in (header, *rows)
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state and the groups, as torch.optim does; with several ranks, all of them must call it."""
        result = super().state_dict()
        return {**result, "state": self._exchange.shared_states(result["state"])}

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

    def __getstate__(self) -> dict[str, Any]:
        if self._exchange.spans_ranks:
            name = type(self).__name__
            raise RuntimeError(
                f"{name}: an optimizer shared among ranks cannot be copied; use its state_dict"
            )
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)
        if "_skipped" not in self.__dict__:
            self._reset_transients()

    @abstractmethod
    def _validate(self, group: dict[str, Any]) -> None:
        """Raise ValueError for hyper-parameters out of range, beyond those all optimizers have."""

    @abstractmethod
    def _new_state(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a parameter before its first step, without ``step``."""

    @abstractmethod
    def _update(self, work: Sequence[Work]) -> None:
        """Update parameters and their states."""

    def _prepare(self, parameters: Sequence[Tensor]) -> None:
        """Do what has to be done on every rank before parameters are updated by those who own them."""

    def _granule(self, parameter: Tensor, group: dict[str, Any]) -> int | None:
        """Return how many consecutive elements belong together in an update; None is all of them."""
        return 1 if self._rule(parameter, group).method == "Adam" else None

    def _cost(self, parameter: Tensor, group: dict[str, Any]) -> float:
        """Return about how many floating-point operations a step takes for a parameter.

        An m×n matrix: 20mn for Adam; for the left side 6m²n for its factor and the rotations there and back, and
        10m³ for an eigendecomposition (about that of an inverse root too) every period; the right side likewise.
        """
        rule = self._rule(parameter, group)
        *batch, m, n = rule.shape
        sides = [size for size, treated in ((m, rule.left), (n, rule.right)) if treated]
        period = group.get("precondition_frequency", 1)
        return math.prod(batch) * (20 * m * n + sum(6 * k * m * n + 10 * k**3 / period for k in sides))

    def _decay(self, group: dict[str, Any]) -> float:
        """Return the decoupled weight decay of a group, in units of its learning rate."""
        return group["weight_decay"]

    def _sites(self, parameter: Tensor) -> list[str]:
        """Return the kinds of the layers that use a parameter, as far as known."""
        return []

    def _given_name(self, parameter: Tensor) -> str | None:
        """Return a name that something other than the parameter groups gives a parameter."""
        return None

    def _rule(self, parameter: Tensor, group: dict[str, Any]) -> Rule:
        """Return how a parameter is treated."""
        rules, stand_in = group["rules"], parameter
        parameter = self._exchange.original(parameter)
        rule = route(
            parameter,
            max_precond_dim=group.get("max_precond_dim"),
            shortest_side=self._shortest_side,
            sites=self._sites(parameter),
            treatment=treatment_of(self._name(parameter), rules) if rules else None,
        )
        return rule if stand_in is parameter else shaped_like(stand_in, rule)

    def _explanation(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, str]:
        """Return the columns of `explain` that follow name and shape."""
        rule = self._rule(parameter, group)
        return {"treated": rule.method, "why": rule.why}

    def _name(self, parameter: Tensor) -> str:
        """Return a parameter's name, or "#" and its position in its group."""
        return self._place(parameter)[1]

    def _position(self, parameter: Tensor) -> int:
        """Return the number of a parameter among all, which spreads periodic work over steps."""
        return self._place(parameter)[0]

    def _place(self, parameter: Tensor) -> tuple[int, str]:
        parameter = self._exchange.original(parameter)
        if id(parameter) not in self._places:
            self._places = {}
            for group in self.param_groups:
                names = group.get("param_names", [None] * len(group["params"]))
                for index, (member, name) in enumerate(zip(group["params"], names, strict=True)):
                    label = name or self._given_name(member) or f"#{index}"
                    self._places[id(member)] = (len(self._places), label)
        return self._places[id(parameter)]

    def _adam_steps(self, work: Sequence[Work]) -> None:
        """Move parameters by Adam, in the bases that their states hold or in the plain one."""
        for bucket in buckets(work, lambda item: item.parameter):
            with self._matrices(bucket) as matrices:
                gradients = [shaped(item.grad, W.shape) for item, W in zip(bucket, matrices, strict=True)]
                adam_steps_(bucket, matrices, gradients, decay=self._decay(bucket[0].group))

    @contextmanager
    def _matrices(self, work: Sequence[Work]) -> Iterator[list[Tensor]]:
        """Yield parameters seen as their rules' matrices, to be overwritten."""
        views = [as_matrices(item.parameter, self._rule(item.parameter, item.group)) for item in work]
        yield views
        for item, view in zip(work, views, strict=True):
            give_back(item.parameter, view)

    def _periodic(self, item: Work, *, phase: int = 0, first: int = 1) -> Callable[[int], bool]:
        """Return what tells of a step whether it renews; with ``stagger`` parameters follow one another."""
        if item.group["stagger"]:
            phase += self._position(item.parameter)
        return partial(refresh_due, period=item.group["precondition_frequency"], phase=phase, first=first)

    def _renewal(self, item: Work, is_due: Callable[[int], bool]) -> int | None:
        """Return the number of a step that renews bases or roots, else None.

        The device, which may have left steps out, is asked where the host's count says so: renewing waits for it
        anyway, and the numbers cannot pass a due one between two questions.

        Args:
            item: The parameter.
            is_due: Tells for the number of a step whether it renews.
        """
        key = id(self._exchange.original(item.parameter))
        count = self._counts[key]
        if not is_due(count):
            return None
        self._counts[key] = taken = int(item.state["step"])
        return count if taken == count else None

    def _skip(self, parameter: Tensor) -> None:
        """Note that a parameter was left alone for its gradient."""
        self._skipped += 1

    def _count_failures(self, failed: Tensor) -> None:
        """Count bases or roots that could not be renewed, without asking the device."""
        self._failed = _sum(self._failed, failed.sum())

    def _reset_transients(self) -> None:
        """Set what is neither saved nor copied: counts of steps, names, counters."""
        self._counts = {}
        self._places = {}
        self._exchange = Exchange()
        self._skipped = 0
        self._failed = 0

    def _begin(self, parameter: Tensor, group: dict[str, Any], finding: Finding) -> bool:
        """Create a parameter's state and note its step; or only decay it, and return False, before it started."""
        state, key = self.state[parameter], id(parameter)
        if not state:
            self._create_state(parameter, group)
        if key not in self._counts:
            taken = int(state["step"])
            if not taken and not finding.nonzero:
                if group["weight_decay"]:
                    self._exchange.local(parameter).mul_(1 - group["lr"] * self._decay(group))
                return False
            self._counts[key] = taken
        self._counts[key] += 1
        return True

    def _count(self, work: Sequence[Work]) -> None:
        """Count the steps of parameters in their states, those that their devices skip as skipped."""
        if not work:
            return
        torch._foreach_add_([item.state["step"] for item in work], 1)
        found = [(item.state["step"], item.found_inf) for item in work if item.found_inf is not None]
        for device in {found_inf.device for _, found_inf in found}:
            steps, skipped = zip(*[pair for pair in found if pair[1].device == device], strict=True)
            torch._foreach_sub_(steps, skipped)
            self._skipped = _sum(self._skipped, torch.stack(skipped).sum())

    def _create_state(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
        prototype = self._exchange.prototype(parameter)
        if prototype is not None:
            state.update(self._new_state(prototype, group))

    def _connect(self) -> None:
        """Share work and state with the ranks that DTensor parameters live on."""
        tensors = sys.modules.get("torch.distributed.tensor")
        if tensors is None or self._exchange.spans_ranks:
            return
        if any(isinstance(p, tensors.DTensor) for group in self.param_groups for p in group["params"]):
            from ..distributed import shard

            shard(self)

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
        states = loaded["state"]
        saved = {p: states[i] for i, p in zip(saved_ids, parameters, strict=True) if i in states}
        self.state.update(self._exchange.own_states(saved))
        self._counts.clear()
        self._places.clear()


def state_bytes(optimizer: Optimizer) -> int:
    """Return the bytes that an optimizer's state tensors take."""
    tensors = (
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)
    )
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _sum(total: int | Tensor, count: Tensor) -> Tensor:
    """Return the sum of a total and a count, on the device of the count."""
    return count + (total.to(count.device) if isinstance(total, Tensor) else total)
