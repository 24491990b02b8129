"""Second moments of layer inputs and output gradients, gathered by hooks during the backward pass.

For a layer y = W x and a loss, G = Σ dy xᵀ over all rows (samples, positions). The Kronecker factors of its
curvature are Σ dy dyᵀ (left) and Σ x xᵀ (right). Only these sums are kept, never x or dy.

A forward hook puts a hook on the layer's output; when the output's gradient arrives, both sums are updated. So
they see exactly the passes that W.grad sees: accumulation adds, checkpointing does not count twice, an in-place
activation after the layer does no harm, and a forward pass without a backward pass leaves nothing.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from .._schema import compute_dtype
from ..ops import gram_ema_
from ._routing import matrix_shape

Approximation = Literal["expand", "reduce"]


@dataclass
class SideSum:
    """Σ x xᵀ over the rows of one side, and Σ x if means are to be subtracted."""

    gram: Tensor
    total: Tensor | None = None
    rows: int = 0

    def add(self, rows: Tensor) -> None:
        """Add rows (k, n)."""
        if rows.shape[0] == 0:
            return
        rows = rows.to(self.gram.dtype)
        gram_ema_(self.gram, rows, beta=1.0, alpha=1.0, side="right")
        if self.total is not None:
            self.total += rows.sum(0)
        self.rows += rows.shape[0]

    def scatter(self) -> Tensor:
        """Return Σ x xᵀ, around the mean row if it is known."""
        return (
            self.gram if self.total is None else self.gram - torch.outer(self.total, self.total) / self.rows
        )


@dataclass
class LayerSums:
    """Sums of one parameter; sites of different kinds (an embedding tied to a head) are kept apart."""

    left: dict[str, SideSum] = field(default_factory=dict)
    right: dict[str, SideSum] = field(default_factory=dict)


class Capture:
    """Hooks on a model's layers and the sums they gather, by parameter.

    Attributes:
        enabled: Whether passes count now.
        epoch: Number of times that sums were forgotten.
        approximation: How positions of a sequence are treated: "expand" counts each as a row, "reduce" averages
            inputs and sums output gradients over them first.
        center: Whether the mean row is to be subtracted from second moments.
    """

    def __init__(
        self,
        model: nn.Module,
        wanted: Callable[[Tensor], tuple[bool, bool]],
        *,
        approximation: Approximation = "expand",
        center: bool = False,
        enabled: bool = True,
    ) -> None:
        """Install hooks on every Linear, Conv2d and Embedding whose weight is wanted on a side.

        Args:
            model: The model that is trained.
            wanted: Tells for a parameter which sides, (left, right), are of interest.
            approximation: "expand" or "reduce".
            center: Whether means are to be subtracted.
            enabled: Whether passes count from now on.
        """
        self.enabled = enabled
        self.center = center
        self.approximation = approximation
        self.epoch = 0
        self.names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        self.refused: dict[Tensor, str] = {}
        self._sums: dict[Tensor, LayerSums] = {}
        self._sites: dict[Tensor, list[str]] = {}
        self._sides: dict[Tensor, tuple[bool, bool]] = {}
        self._handles: list[RemovableHandle] = []
        for module in model.modules():
            self._install(module, wanted)

    def sites(self, parameter: Tensor) -> list[str]:
        """Return the kinds of the layers that use a parameter and are watched."""
        return self._sites.get(parameter, [])

    def watched(self) -> list[Tensor]:
        """Return the parameters that layers are watched for, in the order of the model."""
        return list(self._sites)

    def slots(self, parameter: Tensor) -> list[tuple[str, str, int]]:
        """Return (side, kind of layer, length of the side) of all sums that a parameter may have."""
        lengths = matrix_shape(parameter)[-2:]
        return [
            (side, kind, n)
            for kind in dict.fromkeys(self.sites(parameter))
            for side, n, kept in zip(("left", "right"), lengths, self._sides[parameter], strict=True)
            if kept and not (kind == nn.Embedding.__name__ and side == "left")
        ]

    def put(self, parameter: Tensor, sums: "LayerSums") -> None:
        """Replace a parameter's sums."""
        self._sums[parameter] = sums

    def take(self, parameter: Tensor) -> LayerSums | None:
        """Return a parameter's sums since the last call, and forget them."""
        return self._sums.pop(parameter, None)

    def has(self, parameter: Tensor) -> bool:
        """Tell whether a parameter has sums."""
        return parameter in self._sums

    def reset(self) -> None:
        """Forget all sums."""
        self.epoch += 1
        self._sums.clear()

    def remove(self) -> None:
        """Take the hooks off the model and forget all sums."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.reset()

    @contextmanager
    def switched(self, enabled: bool) -> Iterator[None]:
        """Count passes, or do not, inside a block."""
        before, self.enabled = self.enabled, enabled
        try:
            yield
        finally:
            self.enabled = before

    def add(self, parameter: Tensor, kind: str, left: Tensor | None, right: Tensor | None) -> None:
        """Add rows of both sides; None is a side that is not kept."""
        sums = self._sums.setdefault(parameter, LayerSums())
        for sides, rows in ((sums.left, left), (sums.right, right)):
            if rows is None:
                continue
            if kind not in sides:
                sides[kind] = self.no_rows(parameter, rows.shape[-1], rows.device)
            sides[kind].add(rows)

    def no_rows(self, parameter: Tensor, n: int, device: torch.device) -> SideSum:
        """Return the sums of no rows of length n."""
        zeros = torch.zeros(n, n, dtype=compute_dtype(parameter), device=device)
        return SideSum(zeros, zeros.new_zeros(n) if self.center else None)

    def _install(self, module: nn.Module, wanted: Callable[[Tensor], tuple[bool, bool]]) -> None:
        reader = _READERS.get(_layer_type(module))
        if reader is None:
            return
        weight = module.weight
        assert isinstance(weight, Tensor)
        refusal = _refusal(module)
        sides = wanted(weight)
        if refusal is not None:
            self.refused[weight] = refusal
        elif any(sides):
            site = _Site(self, module, reader, sides)
            self._sides[weight] = sides
            self._sites.setdefault(weight, []).append(site.kind)
            self._handles.append(module.register_forward_hook(site))


class _Site:
    """The forward hook of one layer. A copied or unpickled model carries an inert one."""

    def __init__(
        self, capture: Capture, module: nn.Module, reader: "Reader", sides: tuple[bool, bool]
    ) -> None:
        self.kind = type(module).__name__
        self._capture = weakref.ref(capture)
        self._module = weakref.ref(module)
        # Sharded modules show another tensor as their weight while they compute.
        self._parameter = weakref.ref(module.weight)
        self._read = reader
        self._sides = sides

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        capture = self._capture()
        if capture is None or not capture.enabled or module is not self._module() or not module.training:
            return
        weight, parameter = module.weight, self._parameter()
        assert isinstance(weight, Tensor) and isinstance(parameter, Tensor)
        if not (torch.is_grad_enabled() and weight.requires_grad and output.requires_grad):
            return
        x = inputs[0].detach()

        def receive(grad: Tensor) -> None:
            with torch.no_grad(), torch.autocast(grad.device.type, enabled=False):
                left, right = self._read(module, x, grad, capture.approximation)
                keep_left, keep_right = self._sides
                kept = left if keep_left else None, right if keep_right else None
                _require_whole(capture.names.get(parameter, self.kind), parameter, *kept)
                capture.add(parameter, self.kind, *kept)

        output.register_hook(receive)

    def __reduce__(self) -> tuple[Any, ...]:
        return _inert_site, ()


def _require_whole(name: str, parameter: Tensor, *sides: Tensor | None) -> None:
    """Refuse rows that are a part of what a layer sees: second moments of parts are not those of the whole."""
    for rows, n in zip(sides, matrix_shape(parameter)[-2:], strict=True):
        if rows is not None and (rows.shape[-1] != n or hasattr(rows, "full_tensor")):
            raise RuntimeError(
                f"KPOP: the layer of {name} sees its inputs or outputs in parts, as under tensor parallelism, "
                "which attach does not serve; without attach, factors come from gradients"
            )


def _inert_site() -> Callable[..., None]:
    return _ignore


def _ignore(*_: Any) -> None:
    """Stand in for a hook whose optimizer was not copied along."""


Reader = Callable[[nn.Module, Tensor, Tensor, Approximation], tuple[Tensor | None, Tensor | None]]


def _rows(t: Tensor, approximation: Approximation, *, total: bool) -> Tensor:
    """Return (k, n) rows of a (samples, ..., n) tensor."""
    if approximation == "reduce" and t.ndim > 2:
        positions = t.reshape(t.shape[0], -1, t.shape[-1])
        return positions.sum(1) if total else positions.mean(1)
    return t.reshape(-1, t.shape[-1])


def _read_linear(
    module: nn.Module, x: Tensor, grad: Tensor, approximation: Approximation
) -> tuple[Tensor | None, Tensor | None]:
    return _rows(grad, approximation, total=True), _rows(x, approximation, total=False)


def _read_conv2d(
    module: nn.Module, x: Tensor, grad: Tensor, approximation: Approximation
) -> tuple[Tensor | None, Tensor | None]:
    assert isinstance(module, nn.Conv2d)
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    if x.ndim == 3:
        x, grad = x[None], grad[None]
    padded = F.pad(x, module._reversed_padding_repeated_twice, mode=mode)
    kernel = (module.kernel_size[0], module.kernel_size[1])
    patches = F.unfold(padded, kernel, dilation=module.dilation, stride=module.stride)
    return (
        _rows(grad.flatten(2).mT, approximation, total=True),
        _rows(patches.mT, approximation, total=False),
    )


def _read_embedding(
    module: nn.Module, x: Tensor, grad: Tensor, approximation: Approximation
) -> tuple[Tensor | None, Tensor | None]:
    """The input side, a one-hot vector, has a diagonal second moment: there is nothing to rotate."""
    return None, grad.reshape(-1, grad.shape[-1])


_READERS: dict[type[nn.Module], Reader] = {
    nn.Linear: _read_linear,
    nn.Conv2d: _read_conv2d,
    nn.Embedding: _read_embedding,
}


def _layer_type(module: nn.Module) -> type[nn.Module]:
    return next((kind for kind in _READERS if isinstance(module, kind)), nn.Module)


def _refusal(module: nn.Module) -> str | None:
    """Say why a layer's inputs cannot be captured."""
    if isinstance(module, nn.Conv2d) and module.groups != 1:
        return "a convolution with groups has one input factor a group"
    return None
