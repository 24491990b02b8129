"""Eigenbases renewed: QR steps in C++, eigenpairs by LAPACK, and what surrounds both in one pass each."""

import torch
from torch import Tensor

from .. import _eigenbasis
from .native import kernels, threads

_LONGEST = {"avx512": 1024, "avx2": 1024, "baseline": 0}
"""Largest order that is factored by our own reflections, by instruction set: beyond it LAPACK is as fast."""

_SHIFT = torch.finfo(torch.float32).eps

Results = tuple[Tensor, Tensor, Tensor, Tensor]


def refresh_eigenbasis(
    S: Tensor, Q: Tensor | None, *, method: str = "auto", sort: bool = True, out: Results
) -> None:
    """Write the new basis, its eigenvalues, Q_newᵀ Q and which matrices kept the old one for a failure."""
    n = S.shape[-1]
    if Q is None or method == "auto" or n > _LONGEST[kernels().isa] or not S.numel():
        _eigenbasis.refresh_eigenbasis(S, Q, method=method, sort=sort, out=out)
        return
    S, Q = S.to(torch.float32).contiguous(), Q.contiguous()
    results = tuple(result.contiguous() for result in out)
    basis, eigvals, P, failed = (result.data_ptr() for result in results)
    batch = (S.data_ptr(), Q.data_ptr(), basis, eigvals, P, failed, S.shape[:-2].numel(), n)
    if method == "qr":
        kernels().refresh_eigenbasis(batch, sort=sort, threads=threads())
    else:
        kernels().prepare_eigenbasis(batch, shift=_SHIFT, threads=threads())
        values, vectors = _eigenbasis.eigenpairs(results[0].reshape(-1, n, n))
        values, rows = values.to(torch.float32).contiguous(), vectors.mT.to(torch.float32).contiguous()
        kernels().take_eigenbasis(
            batch, rows.data_ptr(), values.data_ptr(), shift=_SHIFT, sort=sort, threads=threads()
        )
    for result, value in zip(out, results, strict=True):
        if value is not result:
            result.copy_(value)
