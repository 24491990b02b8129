"""Adam in a rotated basis: four products around one pass over parameter and moments."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import python_ref.kron
from bench.case import Case, Inputs, Results, Variant, compiled, normal, orthogonal, ours
from kpop_kernels.backends.composite.kron import kron_adam_

OPS = ("kron_adam_",)
SCALARS: dict[str, Any] = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}

# So large that the update outweighs the parameter, and errors in it are seen.
LR, STEP = 1.0, 7
WRITTEN = ("param", "exp_avg", "exp_avg_sq")
QUICK = ((96, 256), (256, 1024), (768, 768))
FULL = (*QUICK, (96, 96), (768, 3072), (2048, 2048))


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield m×n with both bases, and without bases, which is plain Adam."""
    for dtype in (torch.float32, torch.bfloat16):
        for m, n in QUICK if quick else FULL:
            yield case(m, n, device, dtype=dtype)
        yield case(1024, 4096, device, dtype=dtype, rotated=False)


def case(
    m: int, n: int, device: str, *, batch: int = 1, dtype: torch.dtype = torch.float32, rotated: bool = True
) -> Case:
    """Return the step of `batch` m×n parameters; moments and bases are float32."""

    def make(generator: torch.Generator) -> Inputs:
        shape = (batch, m, n)
        inputs = {
            "param": normal(shape, dtype, generator),
            "grad": normal(shape, dtype, generator),
            "exp_avg": normal(shape, torch.float32, generator),
            # Away from zero: where it is small, N magnifies the rounding of the rotations without end.
            "exp_avg_sq": normal(shape, torch.float32, generator).square() + 0.1,
        }
        if rotated:
            inputs["Q_L"] = orthogonal(m, torch.float32, generator).repeat(batch, 1, 1)
            inputs["Q_R"] = orthogonal(n, torch.float32, generator).repeat(batch, 1, 1)
        return inputs

    rivals = [compiled(kron_adam_, _call), Variant("torch, in place", _in_place)]
    if not rotated and dtype == torch.float32:  # its moments have the parameter's dtype
        rivals.append(Variant("torch fused AdamW", _fused))
    return Case(
        op="kron_adam_",
        shape=(m, n) if batch == 1 else (batch, m, n),
        dtype=dtype,
        bytes=batch * (m * n * (3 * dtype.itemsize + 16) + (4 * (m * m + n * n) if rotated else 0)),
        flops=batch * (4 * m * n * (m + n) if rotated else 0),
        make=make,
        oracle=_oracle,
        bound=max(torch.finfo(dtype).eps, 1e-5),
        variants=(*ours("kron_adam_", _call, device, dtype), *rivals),
        setting="" if rotated else "no bases",
    )


def _call(op: Callable[..., None], inputs: Inputs) -> Results:
    moments = inputs["exp_avg"], inputs["exp_avg_sq"]
    bases = inputs.get("Q_L"), inputs.get("Q_R")
    lr, step = torch.tensor(LR, dtype=torch.float64), torch.tensor(STEP)
    op(inputs["param"], inputs["grad"], *moments, *bases, lr=lr, step=step, **SCALARS)
    return [inputs[name] for name in WRITTEN]


def _oracle(inputs: Inputs) -> tuple[Tensor, ...]:
    arguments: dict[str, Any] = {"Q_L": None, "Q_R": None} | inputs
    return tuple(python_ref.kron.adam(**arguments, lr=LR, step=STEP, **SCALARS))


def _in_place(inputs: Inputs) -> Results:
    """One torch operator after the other, as optimizers in plain PyTorch do it."""
    param, m, v = (inputs[name] for name in WRITTEN)
    Q_L, Q_R = inputs.get("Q_L"), inputs.get("Q_R")
    G = inputs["grad"].to(m.dtype)
    if Q_L is not None and Q_R is not None:
        G = Q_L.mT @ G @ Q_R
    m.lerp_(G, 1 - SCALARS["beta1"])
    v.mul_(SCALARS["beta2"]).addcmul_(G, G, value=1 - SCALARS["beta2"])
    correction = 1 - SCALARS["beta2"] ** STEP
    update = m / (v / correction).sqrt_().add_(SCALARS["eps"])
    if Q_L is not None and Q_R is not None:
        update = Q_L @ update @ Q_R.mT
    param.mul_(1 - LR * SCALARS["weight_decay"])
    param.add_(update, alpha=-LR / (1 - SCALARS["beta1"] ** STEP))
    return param, m, v


def _fused(inputs: Inputs) -> Results:
    param, m, v = (inputs[name] for name in WRITTEN)
    torch._fused_adamw_(
        [param],
        [inputs["grad"]],
        [m],
        [v],
        [],
        [torch.tensor(float(STEP), device=param.device)],
        lr=LR,
        amsgrad=False,
        maximize=False,
        **SCALARS,
    )
    return param, m, v
