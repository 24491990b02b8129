"""Eigenbases renewed by one step of orthogonal iteration in C++; by LAPACK for eigh and for large n."""

import torch
from torch import Tensor

from .. import _eigenbasis
from .native import kernels, threads

_LONGEST = {"avx512": 1024, "avx2": 512, "baseline": 0}
"""Largest order that is factored by our own reflections, by instruction set: beyond it LAPACK is as fast."""


def refresh_eigenbasis(
    S: Tensor,
    Q: Tensor | None,
    *,
    method: str = "auto",
    sort: bool = True,
    out: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    """Write the new basis, its eigenvalues, Q_newᵀ Q and which matrices kept the old one for a failure."""
    n = S.shape[-1]
    if method != "qr" or n > _LONGEST[kernels().isa] or not S.numel():
        _eigenbasis.refresh_eigenbasis(S, Q, method=method, sort=sort, out=out)
        return
    assert Q is not None
    S, Q = S.to(torch.float32).contiguous(), Q.contiguous()
    basis, eigvals, P, failed = (result.contiguous() for result in out)
    kernels().refresh_eigenbasis(
        S.data_ptr(),
        Q.data_ptr(),
        basis.data_ptr(),
        eigvals.data_ptr(),
        P.data_ptr(),
        failed.data_ptr(),
        batch=S.shape[:-2].numel(),
        n=n,
        sort=sort,
        threads=threads(),
    )
    for result, value in zip(out, (basis, eigvals, P, failed), strict=True):
        if value is not result:
            result.copy_(value)
