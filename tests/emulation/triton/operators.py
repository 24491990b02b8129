"""Operators of the Triton backend behind the package's own checks, run by the interpreter between guard bands."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from kpop_kernels._schema import OPERATORS
from kpop_kernels.backends import complete
from kpop_kernels.backends import triton as backend
from kpop_kernels.tuning import BlockwiseConfig
from tests.emulation.triton.guarded import mutant
from tests.guards import Guarded
from tests.ops.launch import Tensors

FEW_PROGRAMS = BlockwiseConfig(elements=2**18, num_warps=4)
"""How millions of elements are shared out: the interpreter's time is that of its programs, whatever their size."""


def imported(file: str) -> ModuleType:
    """Return a module of the backend."""
    return import_module(f"{backend.__name__}.{file}")


def file_name(op: str) -> str:
    """Return the file that implements an operator, or else that on lists of its items."""
    lists = (operator.name for operator in OPERATORS.values() if operator.single is OPERATORS[op])
    return backend.FILES.get(op) or backend.FILES[next(lists)]


def file_of(op: str) -> ModuleType:
    """Return the module that implements an operator, by itself or for lists of its items."""
    return imported(file_name(op))


def implementation(op: str, module: ModuleType | None = None, **options: Any) -> Callable[..., Any]:
    """Return an operator as the backend completes it, of a module that may stand in for its own, with options."""
    module = module or file_of(op)
    found = {name: partial(getattr(module, name), **options) for name in OPERATORS if hasattr(module, name)}
    return complete(found)[op]


def in_few_programs(op: str) -> Callable[..., Any]:
    """Return an operator on blocks behind the package's checks, for millions of elements."""
    return OPERATORS[op].guarded(implementation(op, config=FEW_PROGRAMS))


def run(
    op: str, tensors: Tensors, *, module: ModuleType | None = None, config: Any = None, **scalars: Any
) -> tuple[Tensor, ...]:
    """Call an operator and return its results, and then the arguments that it wrote.

    Every tensor is a copy with its strides inside guard bands; afterwards the bands, and all tensors that are
    only read, must hold the bits they held before.

    Args:
        op: Name of the operator.
        tensors: Its positional arguments by name.
        module: Implements the operator; the backend's own file by default.
        config: How blocks are shared out, where it is not the default.
        **scalars: Its keyword arguments.
    """
    operator = OPERATORS[op]
    function = operator.guarded(implementation(op, module, **({"config": config} if config else {})))
    copies = {name: Guarded(tensor) for name, tensor in tensors.items() if tensor is not None}
    results = operator.results(*tensors.values(), **scalars) if operator.results else ()
    outputs = [Guarded(torch.empty(result.shape, dtype=result.dtype)) for result in results]
    if outputs:
        scalars["out"] = outputs[0].tensor if len(outputs) == 1 else tuple(out.tensor for out in outputs)
    function(*(copies[name].tensor if name in copies else None for name in tensors), **scalars)
    for name, copy in copies.items():
        copy.assert_intact(name) if name in operator.written else copy.assert_unchanged(name)
    for output in outputs:
        output.assert_intact("out")
    written = [copy.tensor for name, copy in copies.items() if name in operator.written]
    return *(output.tensor for output in outputs), *written


def mutated(op: str, file: str, folder: Path, old: str, new: str) -> ModuleType:
    """Return a copy of the module that implements an operator with a bug planted in it or in a file it uses.

    Args:
        op: Name of the operator.
        file: Where the bug goes; another file than the operator's must be one that it imports from.
        folder: Where copies go.
        old: What stands in the text exactly once.
        new: What the copy has there.
    """
    module = file_of(op)
    if file == file_name(op):
        return mutant(module, folder, {old: new})
    mutant(imported(file), folder, {old: new})
    return mutant(module, folder, {f"from .{file} import": f"from .{file}_mutant import"})
