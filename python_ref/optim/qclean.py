"""QClean on one matrix W (m, n): Clean whose bases and moments are rounded to 8-bit blocks where they are kept.

New bases U_L, U_R are rounded at once; M, M_A, M_B (affine grid, stochastically) and V (dynamic map) are rounded
after the step has used them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from python_ref.optim.clean import Clean
from python_ref.quantize import dequantize_dynamic8, dequantize_int8, quantize_dynamic8, quantize_int8

STREAMS = {"M": 0, "M_A": 1, "M_B": 2, "U_L": 3, "U_R": 4}


@dataclass
class QClean(Clean):
    """The state of the first parameter of an optimizer, as it is restored from blocks, and hyper-parameters."""

    bound: float = 1.0
    noise: float = 2e-2
    seed: int = 0
    u_round: str = "nearest"
    bjorck: bool = False

    def keep_bases(self) -> None:
        """Round the bases, and let the step use what was kept."""
        for i, name in enumerate(("U_L", "U_R")):
            basis = self.bases[i]
            assert basis is not None
            U = self._affine(basis, name, self.u_round)
            self.bases[i] = 1.5 * U - 0.5 * U @ U.T @ U if self.bjorck else U

    def keep_moments(self) -> None:
        """Round the moments of main and the first ones of A and B; the pooled ones are numbers."""
        for name in ("M", "M_A", "M_B"):
            setattr(self, name, self._affine(getattr(self, name), name, "stochastic"))
        self.V = dequantize_dynamic8(*quantize_dynamic8(self.V.to(torch.float32))).to(torch.float64)

    def _affine(self, X: Tensor, name: str, rounding: str) -> Tensor:
        blocks = quantize_int8(
            X.to(torch.float32),
            rounding=rounding,
            seed=self.seed,
            step=self.step_count,
            stream=STREAMS[name],
        )
        return dequantize_int8(*blocks).to(torch.float64)
