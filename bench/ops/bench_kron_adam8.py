"""Adam in a rotated basis with 8-bit moments: four products around one pass over blocks and parameter."""

from collections.abc import Callable, Iterator

import torch

import python_ref.kron
import python_ref.quantize as ref
from bench.case import Case, Inputs, Results, Variant, compiled, normal, ours
from bench.ops.bench_kron_adam import LR, SCALARS, STEP
from bench.ops.bench_quantize import BLOCK, RANDOM
from kpop_kernels.backends.composite.kron_adam8 import kron_adam8_

OPS = ("kron_adam8_",)
QUICK = ((96, 256), (256, 1024))
FULL = (*QUICK, (768, 768), (768, 3072), (2048, 2048))


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield m×n with both bases."""
    for m, n in QUICK if quick else FULL:
        yield case(m, n, device)


def case(m: int, n: int, device: str) -> Case:
    """Return the step of an m×n parameter.

    Bases are signed permutations, which cost what others cost, and whose rotations leave codes no room to differ.
    """

    def make(generator: torch.Generator) -> Inputs:
        old = normal((m, n), torch.float32, generator)
        affine, dynamic = ref.quantize_int8(old, **BLOCK), ref.quantize_dynamic8(old.square() + 0.1, **BLOCK)
        return {
            "param": normal((m, n), torch.float32, generator),
            "grad": normal((m, n), torch.float32, generator),
            **{f"m_{name}": tensor for name, tensor in affine._asdict().items()},
            **{f"v_{name}": tensor for name, tensor in dynamic._asdict().items()},
            "Q_L": -torch.eye(m).roll(5, 0),
            "Q_R": torch.eye(n).flip(0),
        }

    return Case(
        op="kron_adam8_",
        shape=(m, n),
        dtype=torch.float32,
        bytes=m * n * 16 + 4 * (m * m + n * n),
        flops=4 * m * n * (m + n),
        make=make,
        oracle=_oracle,
        bound=1e-5,
        variants=(
            *ours("kron_adam8_", _call, device, torch.float32),
            compiled(kron_adam8_, _call),
            Variant("float32 moments, torch", _float32, setup=_float32_moments, oracle=_first, bound=1e-2),
        ),
    )


def _call(op: Callable[..., None], inputs: Inputs) -> Results:
    lr, step = torch.tensor(LR, dtype=torch.float64), torch.tensor(STEP)
    op(*inputs.values(), lr=lr, step=step, **SCALARS, **BLOCK, **RANDOM)
    return [tensor for name, tensor in inputs.items() if name not in ("grad", "Q_L", "Q_R")]


def _oracle(inputs: Inputs) -> Results:
    param, grad, *moments, Q_L, Q_R = inputs.values()
    G = python_ref.kron.rotate(grad, Q_L, Q_R).to(torch.float32)
    affine, dynamic = ref.Affine(*moments[:3]), ref.Dynamic(*moments[3:])
    scalars = SCALARS | {"weight_decay": 0.0}
    new = ref.adam8(torch.zeros_like(G), G, affine, dynamic, lr=LR, step=STEP, **scalars, **BLOCK, **RANDOM)
    decayed = (1 - LR * SCALARS["weight_decay"]) * param.to(torch.float64)
    moved = decayed + python_ref.kron.rotate(new.param, Q_L, Q_R, inverse=True)
    return moved, *new.exp_avg, *new.exp_avg_sq


def _float32_moments(inputs: Inputs) -> Inputs:
    param, grad, *moments, Q_L, Q_R = inputs.values()
    m = ref.dequantize_int8(*moments[:3], **BLOCK)
    v = ref.dequantize_dynamic8(*moments[3:], **BLOCK)
    return {"param": param, "grad": grad, "m": m, "v": v, "Q_L": Q_L, "Q_R": Q_R}


def _float32(inputs: Inputs) -> Results:
    """One torch operator after the other on moments of four times the size."""
    param, grad, m, v, Q_L, Q_R = inputs.values()
    G = Q_L.mT @ grad @ Q_R
    m.lerp_(G, 1 - SCALARS["beta1"])
    v.mul_(SCALARS["beta2"]).addcmul_(G, G, value=1 - SCALARS["beta2"])
    N = m / (v / (1 - SCALARS["beta2"] ** STEP)).sqrt_().add_(SCALARS["eps"])
    param.mul_(1 - LR * SCALARS["weight_decay"])
    param.add_(Q_L @ N @ Q_R.mT, alpha=-LR / (1 - SCALARS["beta1"] ** STEP))
    return (param,)


def _first(inputs: Inputs) -> Results:
    return (_oracle(inputs)[0],)
