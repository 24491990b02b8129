"""The optimizers that every shared test runs on, and what those tests must know of each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer

from kpop_kernels.optim import KPOP, SOAP, Clean, Muon, OnlineKLShampoo, QClean, Shampoo


@dataclass(frozen=True)
class OptimizerCase:
    """One optimizer as the conventions suite sees it.

    Attributes:
        name: The id of the case in test names.
        cls: The optimizer class; its `__name__` is what error messages must mention.
        lr: A learning rate at which small problems descend. A power of two, so that a float32 tensor
            and a Python float hold the same number.
        alternatives: For each hyper-parameter that changes the trajectory, a legal value that is not its
            default and makes a difference within `STEPS_TO_SEE_A_HYPERPARAMETER` steps.
        options: Hyper-parameters that small problems need to see all of the method.
        implementation_flags: Hyper-parameters that choose how the update is computed, not its value.
        invalid: Constructor arguments that must raise `ValueError`, each with a pattern of the message.
            Bad `lr`, `betas`, `eps` and `weight_decay` are tested for every optimizer and not listed.
        optional_group_keys: Group keys that a checkpoint of an older release may lack; None means all.
        supports_complex: Whether complex parameters train (as their real view) instead of being refused.
        departures: Test functions this optimizer must fail, each with the reason. An optimizer of this
            package has none; a baseline's departures prove that those tests can fail.
    """

    name: str
    cls: type[Optimizer]
    lr: float
    alternatives: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    implementation_flags: frozenset[str] = frozenset()
    invalid: tuple[tuple[Mapping[str, Any], str], ...] = ()
    optional_group_keys: frozenset[str] | None = None
    supports_complex: bool = False
    departures: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether the optimizer is this package's, not a baseline."""
        return self.cls.__module__.startswith("kpop_kernels")

    def make(self, params: Iterable[Any], **hyperparameters: Any) -> Optimizer:
        """Build the optimizer over `params` with the case's learning rate and options unless others are given."""
        return self.cls(params, **{"lr": self.lr, **self.options, **hyperparameters})


STEPS_TO_SEE_A_HYPERPARAMETER = 12

INVALID_EVERYWHERE = (
    ({"on_nonfinite": "zero"}, "on_nonfinite is 'zero'"),
    ({"rules": {"*": "diagonal"}}, "rules give '\\*' 'diagonal'"),
    ({"rules": ["*"]}, "rules must map name patterns to treatments, got list"),
)
"""What every optimizer of this package refuses."""

INVALID_REFRESH = (
    ({"precondition_frequency": 0}, "precondition_frequency is 0"),
    ({"max_precond_dim": 0}, "max_precond_dim is 0"),
)

LOW_RANK_OPTIONS = {"rank": 2, "oversampling": 1, "precondition_frequency": 3}
"""Bases of fewer columns than the small shapes have, so that all four parts are there, and renewed often."""

LOW_RANK_ALTERNATIVES = {
    "lr": 2.0**-5,
    "betas": (0.7, 0.9),
    "shampoo_beta": 0.5,
    "eps": 1e-2,
    "weight_decay": 0.1,
    "maximize": True,
    "rank": 3,
    "oversampling": 2,
    "power_iterations": 3,
    "precondition_frequency": 4,
    "max_precond_dim": 5,
    "pool": "sum",
    "alpha": 0.5,
    "gamma": 2.0,
    "limiter_scope": "total",
    "transport": "exact",
    "stagger": True,
    "seed": 1,
    "rules": {"#0": "adam"},
}

INVALID_LOW_RANK = (
    *INVALID_EVERYWHERE,
    *INVALID_REFRESH,
    ({"rank": 0}, "rank is 0"),
    ({"oversampling": -1}, "oversampling is -1"),
    ({"power_iterations": 0.5}, "power_iterations is 0.5"),
    ({"seed": 2**64}, "seed is 18446744073709551616"),
    ({"shampoo_beta": 1.0}, "shampoo_beta holds 1.0"),
    ({"alpha": -1.0}, "alpha is -1.0"),
    ({"gamma": 0.99}, "gamma is 0.99, it must be at least 1"),
    ({"pool": "max"}, "pool is 'max'"),
    ({"limiter_scope": "A"}, "limiter_scope is 'A'"),
    ({"transport": "none"}, "transport is 'none'"),
)

CASES = (
    OptimizerCase(
        name="torch.AdamW",
        cls=torch.optim.AdamW,
        lr=2.0**-6,
        alternatives={
            "lr": 2.0**-5,
            "betas": (0.7, 0.9),
            "eps": 1e-2,
            "weight_decay": 0.1,
            "amsgrad": True,
            "maximize": True,
        },
        implementation_flags=frozenset(
            {"foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"}
        ),
        optional_group_keys=frozenset(
            {"amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused"}
        ),
        supports_complex=True,
        departures={
            "test_a_sparse_gradient_is_refused_by_name_and_changes_nothing": "its error says Adam",
            "test_a_step_of_non_finite_gradients_is_as_if_it_never_happened": "NaN stays in the moments",
            "test_one_non_finite_gradient_leaves_its_parameter_and_the_others_finite": "NaN gets in",
            "test_a_tensor_learning_rate_is_the_float_bit_for_bit": "step size in float32",
            "test_a_default_dtype_of_float64_changes_neither_state_nor_parameters": "step becomes float64",
            "test_loading_keeps_the_dtype_and_bits_of_every_state_tensor": "state is cast to the parameter",
            "test_training_after_loading_does_not_change_what_was_loaded": "loaded tensors are aliased",
            "test_the_dummy_step_of_distributed_checkpoint_does_not_count": "zero gradients advance step",
        },
    ),
    OptimizerCase(
        name="KPOP",
        cls=KPOP,
        lr=2.0**-6,
        alternatives={
            "lr": 2.0**-5,
            "betas": (0.7, 0.9),
            "eps": 1e-2,
            "weight_decay": 0.1,
            "maximize": True,
            "factor_beta": 0.5,
            "precondition_frequency": 3,
            "max_precond_dim": 2,
            "factor_norm": "rows",
            "method": "qr",
            "mode": "seed",
            "stagger": True,
            "rules": {"#0": "left"},
        },
        implementation_flags=frozenset({"on_nonfinite"}),
        invalid=(
            *INVALID_EVERYWHERE,
            *INVALID_REFRESH,
            ({"factor_beta": 1.5}, "factor_beta holds 1.5"),
            ({"factor_norm": "none"}, "factor_norm is 'none'"),
            ({"method": "auto"}, "method is 'auto'"),
            ({"mode": "paper"}, "mode is 'paper'"),
        ),
    ),
    OptimizerCase(
        name="SOAP",
        cls=SOAP,
        lr=2.0**-6,
        alternatives={
            "lr": 2.0**-5,
            "betas": (0.7, 0.9),
            "shampoo_beta": 0.5,
            "eps": 1e-2,
            "weight_decay": 0.1,
            "maximize": True,
            "precondition_frequency": 3,
            "max_precond_dim": 2,
            "method": "qr",
            "transport": "both",
            "first_basis": "identity",
            "stagger": True,
            "rules": {"#0": "left"},
        },
        implementation_flags=frozenset({"on_nonfinite"}),
        invalid=(
            *INVALID_EVERYWHERE,
            *INVALID_REFRESH,
            ({"shampoo_beta": 1.0}, "shampoo_beta holds 1.0"),
            ({"method": "svd"}, "method is 'svd'"),
            ({"transport": "none"}, "transport is 'none'"),
            ({"first_basis": "random"}, "first_basis is 'random'"),
        ),
    ),
    OptimizerCase(
        name="Muon",
        cls=Muon,
        lr=2.0**-6,
        alternatives={
            "lr": 2.0**-5,
            "weight_decay": 0.5,
            "momentum": 0.8,
            "nesterov": False,
            "ns_coefficients": "polar_express",
            "ns_steps": 3,
            "adjust_lr_fn": "match_rms_adamw",
            "betas": (0.7, 0.9),
            "eps": 1e-2,
            "maximize": True,
            "rules": {"#0": "adam"},
        },
        implementation_flags=frozenset({"on_nonfinite"}),
        invalid=(
            *INVALID_EVERYWHERE,
            ({"momentum": 1.0}, "momentum holds 1.0"),
            ({"ns_steps": 0}, "ns_steps is 0"),
            ({"ns_coefficients": "chebyshev"}, "ns_coefficients is 'chebyshev'"),
            ({"ns_coefficients": (1.5, -0.5)}, "it must be a name or three numbers"),
            ({"adjust_lr_fn": "rms"}, "adjust_lr_fn is 'rms'"),
        ),
    ),
    OptimizerCase(
        name="OnlineKLShampoo",
        cls=OnlineKLShampoo,
        lr=2.0**-4,
        alternatives={
            "lr": 2.0**-5,
            "betas": (0.7, 0.9),
            "eps": 1e-2,
            "weight_decay": 0.5,
            "lr_peak": 2.0**-5,
            "maximize": True,
            "max_precond_dim": 5,
            "method": "eigh",
            "precision": "bf16",
            "schedule": "cans",
            "rules": {"#0": "adam"},
        },
        implementation_flags=frozenset({"on_nonfinite"}),
        invalid=(
            *INVALID_EVERYWHERE,
            ({"lr_peak": -1.0}, "lr_peak is -1.0"),
            ({"max_precond_dim": 0}, "max_precond_dim is 0"),
            ({"method": "svd"}, "method is 'svd'"),
            ({"precision": "fp8"}, "precision is 'fp8'"),
            ({"schedule": "muon"}, "schedule is 'muon'"),
        ),
    ),
    OptimizerCase(
        name="Shampoo",
        cls=Shampoo,
        lr=2.0**-6,
        alternatives={
            "lr": 2.0**-5,
            "betas": (0.7, 0.9),
            "eps": 1e-2,
            "weight_decay": 0.1,
            "maximize": True,
            "accumulation": "sum",
            "damping": 1e-2,
            "graft": "sgd",
            "precondition_frequency": 3,
            "stagger": True,
            "block_size": 3,
            "max_precond_dim": 5,
            "fold": False,
            "method": "eigh",
            "rules": {"#0": "adam"},
        },
        implementation_flags=frozenset({"on_nonfinite"}),
        invalid=(
            *INVALID_EVERYWHERE,
            *INVALID_REFRESH,
            ({"damping": -1.0}, "damping is -1.0"),
            ({"block_size": 0}, "block_size is 0"),
            ({"accumulation": "mean"}, "accumulation is 'mean'"),
            ({"graft": "sgdm"}, "graft is 'sgdm'"),
            ({"method": "svd"}, "method is 'svd'"),
        ),
    ),
    OptimizerCase(
        name="Clean",
        cls=Clean,
        lr=2.0**-6,
        options=LOW_RANK_OPTIONS,
        alternatives=LOW_RANK_ALTERNATIVES | {"clip": True},
        implementation_flags=frozenset({"on_nonfinite"}),
        invalid=INVALID_LOW_RANK,
    ),
    OptimizerCase(
        name="QClean",
        cls=QClean,
        lr=2.0**-6,
        options=LOW_RANK_OPTIONS,
        alternatives=LOW_RANK_ALTERNATIVES
        | {"clip": False, "u_round": "stochastic", "orthonormalize": "bjorck"},
        implementation_flags=frozenset({"on_nonfinite"}),
        invalid=(
            *INVALID_LOW_RANK,
            ({"u_round": "up"}, "u_round is 'up'"),
            ({"orthonormalize": "qr"}, "orthonormalize is 'qr'"),
        ),
    ),
)
