"""Milliseconds of an optimizer's step, refreshes of its preconditioner included in their share."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bench.case import Case, Inputs, Results, Variant
from bench.optim.contenders import REFRESH_PERIOD, Contender, contenders

LAYER_SETS: dict[str, tuple[tuple[int, int], ...]] = {
    "demo model": (
        *(2 * (*4 * ((96, 96),), (256, 96), (256, 96), (96, 256))),
        *2 * ((256, 96),),
    ),
    "GPT-2 small block": ((2304, 768), (768, 768), (3072, 768), (768, 3072)),
}
"""Shapes of the matrices; vectors cost nothing beside them."""

QUICK = ("demo model",)

# Adam's parameter, gradient and two moments; a preconditioner only adds to it.
BYTES_PER_PARAMETER = 7 * 4


@dataclass
class Workload:
    """An optimizer on parameters whose gradients do not change.

    Attributes:
        optimizer: What is timed.
        parameters: Its parameters.
        gradients: What each step is given; some optimizers take the gradients away with them.
        before: Their values before the first step.
    """

    optimizer: Optimizer
    parameters: list[Tensor]
    gradients: list[Tensor]
    before: list[Tensor]


def cases(device: str, *, quick: bool) -> Iterator[Case]:
    """Yield one case for each set of layers."""
    for name in QUICK if quick else LAYER_SETS:
        yield case(name, LAYER_SETS[name], contenders(), quick=quick)


def case(name: str, shapes: tuple[tuple[int, int], ...], rivals: Iterator[Contender], *, quick: bool) -> Case:
    """Return the step of all parameters of a set, `REFRESH_PERIOD` of them a launch."""
    takes_part, left_out = [], {}
    for contender in rivals:
        if quick and contender.slow_start:
            left_out[contender.name] = "it compiles for minutes, quick runs leave it out"
        else:
            takes_part.append(contender)
    count = sum(m * n for m, n in shapes)

    def make(generator: torch.Generator) -> Inputs:
        inputs = {}
        for index, shape in enumerate(shapes):
            inputs[f"param{index}"] = 0.02 * torch.randn(shape, generator=generator)
            inputs[f"grad{index}"] = torch.randn(shape, generator=generator)
        return inputs

    return Case(
        op="step",
        shape=(count,),
        dtype=torch.float32,
        bytes=BYTES_PER_PARAMETER * count,
        flops=0,
        make=make,
        oracle=partial(_all_descend, len(shapes)),
        bound=0.0,
        variants=[
            Variant(c.name, _run, setup=partial(_start, c), ours=c.ours, value=_descending)
            for c in takes_part
        ],
        setting=name,
        repeats=REFRESH_PERIOD,
        left_out=left_out,
    )


def _start(contender: Contender, inputs: Inputs) -> Workload:
    count = len(inputs) // 2
    parameters: list[Tensor] = [nn.Parameter(inputs[f"param{index}"]) for index in range(count)]
    gradients = [inputs[f"grad{index}"] for index in range(count)]
    before = [parameter.detach().clone() for parameter in parameters]
    return Workload(contender.build(parameters), parameters, gradients, before)


def _run(workload: Workload) -> Workload:
    for _ in range(REFRESH_PERIOD):
        for parameter, gradient in zip(workload.parameters, workload.gradients, strict=True):
            parameter.grad = gradient
        workload.optimizer.step()
    return workload


def _descending(workload: Workload) -> Results:
    """Tell of each parameter whether it moved against its gradient."""
    moved = zip(workload.parameters, workload.before, workload.gradients, strict=True)
    slopes = [((parameter.detach() - old) * gradient).sum() for parameter, old, gradient in moved]
    return (torch.stack([(slope < 0).to(torch.float64) for slope in slopes]),)


def _all_descend(count: int, inputs: Inputs) -> Results:
    return (torch.ones(count, dtype=torch.float64),)
