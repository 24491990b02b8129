"""Does this GPU round as the exact kernels assume? A kernel whose answers are known is run and compared."""

import torch
from torch import Tensor

from kpop_kernels.backends.metal import _shader

_PAIRS = 1000
_RESULTS = 8
_SUMS = 2

REQUIRED = ("exact_product", "exact_reciprocal", "exact_division", "exact_fraction", "sum")
"""Findings without which quantization is not bit-identical to the other backends."""


def check_arithmetic(device: torch.device | str = "mps") -> dict[str, bool]:
    """Run the canary kernel and say what it found.

    Args:
        device: The device whose arithmetic is checked.

    Returns:
        Each finding by name:

        - ``product``, ``sum``, ``quotient``, ``reciprocal``: every result of the GPU's operation is rounded
          correctly, to nearest even.
        - ``exact_product``, ``exact_reciprocal``, ``exact_division``, ``exact_fraction``: so is every result
          of the functions of ``exact.metal``; a product also where a sum follows.
        - ``fma_fused``: fma rounds once.
        - ``statement_contracted``: a·b + c in one statement became an fma.
        - ``subnormal_operands``, ``subnormal_results``: subnormals are kept, not flushed to zero.
        - ``bits_promised``: all that bit-identical quantization needs holds.
    """
    a, b = _operands()
    product = a * b
    # The rounding error of a product is a float: what fma leaves when the rounded product is taken away.
    error = (a.double() * b.double() - product.double()).float()
    tiny = torch.tensor([[2.0**-130, 2.0**10, 0.0], [2.0**-100, 2.0**-40, 0.0]])
    operands = torch.cat([torch.stack([a, b, -product], dim=1), tiny])
    got = _run("canary", operands, _RESULTS, device)
    columns = got[:_PAIRS].unbind(1)
    sums = _run("canary_sums", operands, _SUMS, device, [len(operands)])[:_PAIRS]

    def equal(column: int, expected: Tensor) -> bool:
        return torch.equal(columns[column], expected.view(torch.int32))

    fraction = -product - torch.floor(-product)

    findings = {
        "product": equal(0, product),
        "sum": equal(1, a + b),
        "quotient": equal(2, a / b),
        "reciprocal": equal(3, 1.0 / b),
        "fma_fused": equal(4, error),
        "statement_contracted": bool(sums[:, 0].any()),
        "exact_product": not sums[:, 1].any(),
        "exact_reciprocal": equal(5, 1.0 / b),
        "exact_division": equal(6, a / 254.0),
        "exact_fraction": equal(7, (fraction * 65536.0).to(torch.int32)),
        "subnormal_operands": got[_PAIRS, 0].item() != 0,
        "subnormal_results": got[_PAIRS + 1, 0].item() != 0,
    }
    findings["bits_promised"] = all(findings[name] for name in REQUIRED)
    return findings


def _run(
    kernel_name: str, operands: Tensor, results_each: int, device: torch.device | str, *others: list[int]
) -> Tensor:
    results = torch.full((len(operands), results_each), 0x55555555, dtype=torch.int32, device=device)
    bits = operands.view(torch.int32).to(device)
    _shader.kernel("canary", kernel_name)(bits, results, *others, threads=len(operands), group_size=64)
    return results.cpu()


def _operands() -> tuple[Tensor, Tensor]:
    """Return positive floats with random mantissas and exponents from -20 to 20, always the same."""
    generator = torch.Generator().manual_seed(0)
    mantissas = 1.0 + torch.randint(0, 2**23, (2, _PAIRS), generator=generator) / 2.0**23
    exponents = torch.randint(-20, 21, (2, _PAIRS), generator=generator)
    a, b = torch.ldexp(mantissas, exponents)
    return a, b
