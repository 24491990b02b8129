"""Moving tensors between the ranks of a process group: few collectives, the same on every rank."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Form = tuple[tuple[int, ...], torch.dtype]
"""Shape and dtype of a tensor that is expected."""

BUCKET_BYTES = 1 << 26
"""Size of the buffer that one all_gather fills."""

_ALIGNMENT = 16

# The same collective: torch 2.13 renamed it.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Transport:
    """A process group and what is done with it.

    Tensors of all dtypes travel in one buffer of bytes, so their values never change on the way.

    Attributes:
        group: The process group.
        ranks: Its global ranks.
        rank: This process's place among them.
        size: Their number.
    """

    def __init__(self, group: Any) -> None:
        self.group = group
        self.ranks: list[int] = dist.get_process_group_ranks(group)
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.talk = group if "gloo" in dist.get_backend(group) else self.new_group("gloo")
        """A group for facts that the host must know, which does not wait for an accelerator."""

    def new_group(self, backend: str | None = None) -> Any:
        """Return another group of the same ranks, whose collectives are not ordered among those of others."""
        whole_world = len(self.ranks) == dist.get_world_size()
        return dist.new_group(
            self.ranks,
            backend=backend,
            timeout=_timeout(self.group),
            use_local_synchronization=not whole_world,
        )

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Return the largest of each number over all ranks."""
        tensor = torch.tensor(list(numbers), dtype=torch.int64)
        if numbers:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.talk)
        return tensor.tolist()

    def any_(self, flags: Tensor) -> Tensor:
        """Set each flag, a number 0 or 1, that is set on any rank, on its device."""
        dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self.group)
        return flags

    def move(
        self, outgoing: Sequence[Sequence[Tensor]], expected: Sequence[Sequence[Form]], device: torch.device
    ) -> list[list[Tensor]]:
        """Send tensors to each rank and return those that each rank sent, with one all_to_all.

        Args:
            outgoing: Tensors for each rank.
            expected: What each rank will send here.
            device: Where tensors are.
        """
        sending = [sum(_padded(t.numel() * t.element_size()) for t in tensors) for tensors in outgoing]
        receiving = [sum(_padded(_bytes(form)) for form in forms) for forms in expected]
        out = torch.empty(sum(sending), dtype=torch.uint8, device=device)
        _pack(out, [tensor for tensors in outgoing for tensor in tensors])
        arrived = torch.empty(sum(receiving), dtype=torch.uint8, device=device)
        dist.all_to_all_single(arrived, out, receiving, sending, group=self.group)
        return [
            _views(buffer, forms) for buffer, forms in zip(arrived.split(receiving), expected, strict=True)
        ]

    def gather(
        self, mine: Sequence[Tensor], targets: Sequence[Sequence[Tensor]], device: torch.device
    ) -> None:
        """Fill the targets of each rank with what it gives, on every rank.

        Args:
            mine: What this rank gives, of the shapes and dtypes of its own targets.
            targets: Contiguous tensors for what each rank gives. Overwritten.
            device: Where tensors are.
        """
        lengths = [sum(_padded(t.numel() * t.element_size()) for t in tensors) for tensors in targets]
        longest = max(lengths)
        bucket = min(longest, _padded(BUCKET_BYTES // self.size))
        given = torch.empty(-(-longest // bucket) * bucket if bucket else 0, dtype=torch.uint8, device=device)
        _pack(given, mine)
        for start in range(0, longest, bucket or 1):
            chunk = torch.empty(self.size * bucket, dtype=torch.uint8, device=device)
            _all_gather(chunk, given[start : start + bucket], group=self.group)
            for piece, tensors in zip(chunk.split(bucket), targets, strict=True):
                _fill(tensors, piece, start)

    def send_to_all(self, tensor: Tensor, source: int) -> None:
        """Overwrite a contiguous tensor on every rank by that of one rank."""
        dist.broadcast(tensor, self.ranks[source], group=self.group)

    def tell(self, fact: Any) -> list[Any]:
        """Return what each rank tells, any picklable object."""
        facts: list[Any] = [None] * self.size
        dist.all_gather_object(facts, fact, group=self.talk)
        return facts


def _timeout(group: Any) -> Any:
    """Return how long a group waits for a rank; groups made beside it shall wait no longer."""
    backend = group._get_backend(group._device_types[0])
    return backend.options._timeout


def _padded(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def _bytes(form: Form) -> int:
    shape, dtype = form
    return torch.Size(shape).numel() * dtype.itemsize


def _pack(buffer: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy tensors into a buffer of bytes, one after another."""
    forms = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
    for view, tensor in zip(_views(buffer, forms), tensors, strict=True):
        view.copy_(tensor)


def _views(buffer: Tensor, forms: Sequence[Form]) -> list[Tensor]:
    """Return views of a buffer of bytes as the tensors that are packed in it."""
    views, start = [], 0
    for form in forms:
        shape, dtype = form
        views.append(buffer[start : start + _bytes(form)].view(dtype).view(shape))
        start += _padded(_bytes(form))
    return views


def _fill(targets: Sequence[Tensor], piece: Tensor, start: int) -> None:
    """Copy into targets, packed one after another, the bytes of them that begin at a place."""
    stop, first = start + piece.numel(), 0
    for target in targets:
        raw = target.view(-1).view(torch.uint8)
        low, high = max(start, first), min(stop, first + raw.numel())
        if low < high:
            raw[low - first : high - first] = piece[low - start : high - start]
        first += _padded(raw.numel())
