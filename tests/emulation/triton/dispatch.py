"""The Triton backend as what torch's dispatcher calls on the CPU, for tests of what is built on operators."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kpop_kernels._schema import OPERATORS
from kpop_kernels._schema.operator import NAMESPACE
from kpop_kernels.backends import complete
from kpop_kernels.backends import triton as backend


@contextmanager
def served_by_triton() -> Iterator[None]:
    """Let the backend serve every operator that it has for CPU tensors; to be used inside `interpreter`."""
    with torch.library._scoped_library(NAMESPACE, "IMPL") as library:
        for name, implementation in complete(backend.implementations()).items():
            operator = OPERATORS[name]
            for overload, function in operator.overloads(operator.guarded(implementation)).items():
                with warnings.catch_warnings():
                    # Torch says once that a kernel was there already.
                    warnings.simplefilter("ignore")
                    library.impl(name + overload, function, "CPU", allow_override=True)
        yield
