"""Random matrices of the kinds that the operators are about."""

import torch
from torch import Tensor


def normal(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return independent standard normal numbers, drawn in float64 and rounded."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def orthogonal(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return random orthogonal matrices; the last two sizes are equal."""
    return torch.linalg.qr(normal(generator, *shape))[0].contiguous().to(dtype)


def reflection(generator: torch.Generator, n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return I - 2uuᵀ for a random unit vector u: orthogonal, dense, and quick to make for large n."""
    u = normal(generator, n, 1)
    u /= torch.linalg.vector_norm(u)
    return (torch.eye(n, dtype=u.dtype) - 2 * u @ u.mT).to(dtype)


def signed_permutation(generator: torch.Generator, n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return a permutation matrix with random signs."""
    rows = torch.eye(n, dtype=dtype)[torch.randperm(n, generator=generator)]
    return rows * (2 * torch.randint(2, (n, 1), generator=generator) - 1)


def covariance(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return symmetric positive semidefinite matrices, exactly symmetric after rounding."""
    A = normal(generator, *shape)
    product = (A @ A.mT / max(1, shape[-1])).to(dtype)
    return product.tril() + product.tril(-1).mT


def factors(
    generator: torch.Generator,
    batch: tuple[int, ...],
    sizes: tuple[int, int],
    kinds: tuple[str, str],
    dtype: torch.dtype = torch.float64,
) -> list[Tensor | None]:
    """Return orthogonal factors for the left and right side.

    Args:
        generator: Source of random numbers.
        batch: Batch dimensions of the matrix they belong to.
        sizes: Its rows and columns.
        kinds: For each side "none", "shared" by the whole batch, or "each" matrix its own.
        dtype: Element type.
    """
    shapes = {"shared": (), "each": batch}
    return [
        None if kind == "none" else orthogonal(generator, *shapes[kind], n, n, dtype=dtype)
        for n, kind in zip(sizes, kinds, strict=True)
    ]
