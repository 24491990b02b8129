"""``python -m kpop_kernels.distributed``: what steps of an optimizer would cost on many ranks."""

import argparse
from collections.abc import Iterator, Sequence

from .. import optim
from .._table import table
from ._simulate import MODELS, Rates, simulate

OPTIMIZERS = ("KPOP", "SOAP", "Shampoo", "OnlineKLShampoo", "Clean", "QClean", "Muon")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of the plans that are asked for."""
    options = _parser().parse_args(arguments)
    rates = Rates(options.tflops * 1e12, options.bandwidth * 1e9, options.latency * 1e-6)
    print(
        f"{options.optimizer}, {options.parallelism}, parameters and gradients in bfloat16. Rates of a rank: "
        f"{options.tflops:g} TFLOP/s, {options.bandwidth:g} GB/s each way, {options.latency:g} us a message."
    )
    print("Busiest rank of a step; bytes are those of the optimizer's own collectives.\n")
    print("\n".join(table(_rows(options, rates))))
    return 0


def _rows(options: argparse.Namespace, rates: Rates) -> Iterator[tuple[str, ...]]:
    yield (
        "model", "ranks", "with work", "work max/mean", "GFLOP", "state MB", "max/mean", "MB sent",
        "MB received", "compute ms", "communicate ms",
    )  # fmt: skip
    for name in options.models:
        named = list(MODELS[name].parameters())
        rules = {"embedding": "adam", "head": "adam"}
        optimizer = getattr(optim, options.optimizer)(named, rules=rules)
        for ranks in options.ranks:
            plan = simulate(optimizer, ranks, options.parallelism)
            memory = plan.loads.memory
            yield (
                name,
                str(ranks),
                str(plan.owners),
                f"{plan.work_imbalance:.2f}",
                f"{max(plan.loads.work) / 1e9:.0f}",
                f"{max(memory) / 1e6:.0f}",
                f"{max(memory) * ranks / sum(memory):.2f}",
                f"{max(plan.sent) / 1e6:.0f}",
                f"{max(plan.received) / 1e6:.0f}",
                f"{plan.compute_seconds(rates) * 1e3:.1f}",
                f"{plan.communicate_seconds(rates) * 1e3:.1f}",
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m kpop_kernels.distributed", description=__doc__)
    add = parser.add_argument
    add("--models", nargs="+", choices=tuple(MODELS), default=list(MODELS))
    add("--ranks", nargs="+", type=_positive(int), default=[8, 64, 512])
    add("--optimizer", choices=OPTIMIZERS, default="KPOP")
    add("--parallelism", choices=("fsdp2", "ddp"), default="fsdp2")
    add("--tflops", type=_positive(float), default=100.0, help="TFLOP/s of a rank (default: %(default)s)")
    add("--bandwidth", type=_positive(float), default=25.0, help="GB/s each way (default: %(default)s)")
    add("--latency", type=_positive(float), default=10.0, help="us a message (default: %(default)s)")
    return parser


def _positive(kind: type) -> type:
    def positive(text: str) -> float:
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text} is not positive")
        return value

    return positive  # type: ignore[return-value]


if __name__ == "__main__":
    raise SystemExit(main())
