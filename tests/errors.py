"""How far a result is from the oracle, and how far it may be."""

import torch
from torch import Tensor


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return the largest relative error of rounding to a dtype."""
    return torch.finfo(dtype).eps / 2


def relative_error(result: Tensor, oracle: Tensor) -> float:
    """Return ‖result - oracle‖_F / ‖oracle‖_F in float64; absolute for a zero oracle."""
    assert result.shape == oracle.shape, f"shape {tuple(result.shape)}, not {tuple(oracle.shape)}"
    distance = torch.linalg.vector_norm(result.to(torch.float64) - oracle)
    size = torch.linalg.vector_norm(oracle)
    return (distance / size if size else distance).item()


def largest_error(result: Tensor, oracle: Tensor) -> float:
    """Return max|result - oracle| / max|oracle| in float64, for results whose elements are independent."""
    assert result.shape == oracle.shape, f"shape {tuple(result.shape)}, not {tuple(oracle.shape)}"
    if not oracle.numel():
        return 0.0
    distance, size = (result.to(torch.float64) - oracle).abs().max(), oracle.abs().max()
    return (distance / size if size else distance).item()


def assert_accurate(
    result: Tensor,
    composite: Tensor,
    oracle: Tensor,
    *,
    bound: float,
    name: str = "result",
    error=relative_error,
) -> None:
    """Require e(result) ≤ 2 e(composite) + 4u and e(result) ≤ bound, each against the float64 oracle.

    The first catches a backend that loses more than plain PyTorch does, the second a fault that both share.

    Args:
        result: What the backend under test computed.
        composite: What the composite backend computed from the same inputs in the same dtype.
        oracle: What python_ref computed, in float64.
        bound: Largest error allowed whatever composite does.
        name: What the message calls the result.
        error: The metric.
    """
    assert oracle.dtype == torch.float64, f"the oracle is {oracle.dtype}, it must be float64"
    assert result.dtype == composite.dtype, f"{name} is {result.dtype}, composite's is {composite.dtype}"
    ours, theirs = error(result, oracle), error(composite, oracle)
    slack = 4 * unit_roundoff(result.dtype)
    # Written so that NaN fails.
    assert ours <= 2 * theirs + slack and ours <= bound, (
        f"{name}: error {ours:.3e}, composite has {theirs:.3e}: "
        f"at most {2 * theirs + slack:.3e} and {bound:.3e} are allowed"
    )
