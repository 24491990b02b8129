"""One context manager for each fault; inside it the optimizers are wrong in that one way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from kpop_kernels import dequantize_int8, kron_rotate, quantize_int8, rebase_moments_
from kpop_kernels.backends.composite import nystrom
from kpop_kernels.optim import (
    OnlineKLShampoo,
    _base,
    _low_rank,
    _refresh,
    _updates,
    muon,
    online_kl_shampoo,
    qclean,
    shampoo,
)
from kpop_kernels.optim._factors import SIDES

Fault = Callable[[], Any]


def replacing(owner: Any, name: str) -> Callable[[Callable[..., Any]], Fault]:
    """Turn a function of the true one and its arguments into the fault that puts it in the true one's place."""

    def decorate(faulty: Callable[..., Any]) -> Fault:
        @contextmanager
        def planted() -> Iterator[None]:
            true = getattr(owner, name)
            with patch.object(owner, name, lambda *args, **kwargs: faulty(true, *args, **kwargs)):
                yield

        planted.__name__ = faulty.__name__
        planted.__doc__ = faulty.__doc__
        return planted

    return decorate


# Adam's bias correction, in the step that KPOP, SOAP and what is left to Adam share.


@replacing(_updates, "kron_adam_foreach_")
def adam_without_bias_correction(true, *args, step, **kwargs):
    true(*args, step=1e9, **kwargs)


@replacing(_updates, "kron_adam_foreach_")
def adam_without_correction_of_the_second_moment(true, *args, step, lr, beta1, **kwargs):
    """With both corrections gone, the rate makes up for the first one."""
    (t,) = {t.item() for t in step}
    true(*args, step=1e9, lr=lr / (1 - beta1**t), beta1=beta1, **kwargs)


@replacing(_updates, "kron_adam_foreach_")
def adam_a_step_late(true, *args, step, **kwargs):
    true(*args, step=[t + 1 for t in step], **kwargs)


@replacing(_updates, "kron_adam_foreach_")
def update_not_rotated_back(true, params, grads, m, v, Q_L, Q_R, **kwargs):
    rotated = [kron_rotate(*item) for item in zip(grads, Q_L, Q_R, strict=True)]
    none = [None] * len(rotated)
    true(params, rotated, m, v, none, none, **kwargs)


# Moments carried into a new basis.


def _change(old, new):
    return {key: None if key not in old else new[key].mT @ old[key] for key in ("Q_L", "Q_R")}.values()


@replacing(_refresh, "refresh_bases")
def kpop_moments_not_carried(true, states, step, *, transport, **kwargs):
    return true(states, step, transport="none", **kwargs)


@replacing(_refresh, "refresh_bases")
def kpop_moments_carried_the_wrong_way(true, states, step, *, transport, **kwargs):
    old = [dict(state) for state in states]
    failures = true(states, step, transport="none", **kwargs)
    if step > 1:
        for before, state in zip(old, states, strict=True):
            P_L, P_R = (P.mT.contiguous() for P in _change(before, state))
            rebase_moments_(state["exp_avg"], state["exp_avg_sq"], P_L, P_R)
    return failures


@replacing(_refresh, "refresh_bases")
def soap_first_moment_not_carried(true, states, step, **kwargs):
    moments = [state["exp_avg"].clone() for state in states]
    failures = true(states, step, **kwargs)
    for m, state in zip(moments, states, strict=True):
        state["exp_avg"] = m
    return failures


@replacing(_refresh, "refresh_bases")
def soap_first_moment_carried_the_wrong_way(true, states, step, **kwargs):
    old = [dict(state, exp_avg=state["exp_avg"].clone()) for state in states]
    failures = true(states, step, **kwargs)
    for before, state in zip(old, states, strict=True):
        state["exp_avg"] = kron_rotate(before["exp_avg"], *_change(before, state))
    return failures


@replacing(_refresh, "refresh_bases")
def soap_second_moment_not_reordered(true, states, step, **kwargs):
    """Columns are ordered by falling eigenvalue; the first moment follows, the second does not."""
    failures = true(states, step, **kwargs)
    for state in states:
        for axis, (_, factor, basis) in enumerate(SIDES):
            Q = state[basis]
            order = (Q * (state[factor] @ Q)).sum(0).argsort(descending=True)
            state[basis] = Q[:, order]
            state["exp_avg"] = state["exp_avg"].index_select(axis, order)
    return failures


@replacing(_refresh, "refresh_bases")
def soap_order_flipped_at_every_other_refresh(true, states, step, **kwargs):
    """The first moment follows, the second does not."""
    failures = true(states, step, **kwargs)
    for state in states if step // 10 % 2 else []:
        state.update(
            {key: state[key].flip(-1) for key in ("Q_L", "Q_R")}, exp_avg=state["exp_avg"].flip(0, 1)
        )
    return failures


# Online KL Shampoo.


@replacing(online_kl_shampoo, "_shape_scale")
def okls_without_the_shape_scale(true, m, n):
    return 1.0


@replacing(online_kl_shampoo, "nesterov_variance")
def okls_without_the_scale_of_the_momentum(true, beta1):
    return 1.0


@replacing(online_kl_shampoo, "nesterov_variance")
def okls_with_the_variance_of_a_plain_average(true, beta1):
    return (1 - beta1) / (1 + beta1)


@replacing(online_kl_shampoo, "_nesterov_momentum")
def okls_without_nesterov(true, G, M, beta1):
    return M.lerp_(G, 1 - beta1)


@replacing(online_kl_shampoo, "whiten_update_foreach_")
def okls_left_root_left_out(true, params, N, P_L, P_R, **kwargs):
    true(params, N, [None] * len(N), P_R, **kwargs)


@replacing(online_kl_shampoo, "kl_gram_ema_foreach_")
def okls_factors_of_shampoo(true, S_a, S_b, G, P_a, P_b, **kwargs):
    """Not whitened by the other side."""
    none = [None] * len(G)
    true(S_a, S_b, G, none, none, **kwargs)


@replacing(online_kl_shampoo, "kl_gram_ema_foreach_")
def okls_shares_swapped(true, S_a, S_b, gradients, P_a, P_b, *, beta, eps):
    """1/m for 1/n and the other way round."""
    for left, right, G, own, other in zip(S_a, S_b, gradients, P_a, P_b, strict=True):
        m, n = G.shape[-2:]
        rows, columns = G @ other, own @ G
        left.mul_(beta).add_(rows @ rows.mT, alpha=(1 - beta) / m)
        right.mul_(beta).add_(columns.mT @ columns, alpha=(1 - beta) / n)
        for S in (left, right):
            S.diagonal(dim1=-2, dim2=-1).add_(eps)


@replacing(online_kl_shampoo, "_first_factor")
def okls_first_factors_not_scaled(true, *args):
    return 2 * true(*args)


@replacing(OnlineKLShampoo, "_decay")
def okls_decay_linear_in_the_rate(true, self, group):
    return group["weight_decay"]


@replacing(OnlineKLShampoo, "_decay")
def okls_peak_of_the_default_in_every_group(true, self, group):
    return true(self, group | {"lr_peak": 0.09434})


# Clean.


@replacing(_low_rank, "carry_moments")
def clean_moments_not_carried(true, *args, **kwargs):
    pass


@replacing(_low_rank, "carry_moments")
def clean_moments_carried_the_wrong_way(true, state, old_L, old_R, **kwargs):
    new = {key: state[key] for key in ("U_L", "U_R")}
    state.update(U_L=old_L, U_R=old_R)
    true(state, new["U_L"], new["U_R"], **kwargs)
    state.update(new)


def _carrying_without(key: str) -> Fault:
    @replacing(_low_rank, "carry_moments")
    def faulty(true, state, *args, **kwargs):
        before = state[key].clone()
        true(state, *args, **kwargs)
        state[key] = before

    return faulty


clean_first_moment_of_main_not_carried = _carrying_without("exp_avg")
clean_second_moment_of_A_not_carried = _carrying_without("exp_avg_sq_A")
clean_second_moment_of_B_not_carried = _carrying_without("exp_avg_sq_B")


@replacing(_low_rank, "block_project_foreach")
def clean_main_part_alone(true, *args):
    return [
        parts._replace(**{name: torch.zeros_like(getattr(parts, name)) for name in "ABC"})
        for parts in true(*args)
    ]


@replacing(_low_rank, "block_project_foreach")
def clean_C_dropped(true, *args):
    return [parts._replace(C=torch.zeros_like(parts.C)) for parts in true(*args)]


@replacing(_low_rank, "_limited")
def clean_norm_not_limited(true, X, norm, gamma):
    return X


@replacing(_low_rank, "_normalized_parts")
def clean_pools_sums(true, state, C, group, step):
    return true(state, C, group | {"pool": "sum"}, step)


@replacing(_low_rank, "bias_correction")
def clean_without_bias_correction(true, beta, step):
    return 1.0


@replacing(_low_rank, "_normalized_parts")
def clean_without_correction_of_the_second_moment(true, state, C, group, step):
    keys = [key for key in state if key.startswith("exp_avg_sq")]
    correction = 1 - group["betas"][1] ** step.item()
    return true(state | {key: state[key] * correction for key in keys}, C, group, step)


@replacing(_base, "refresh_due")
def clean_refreshed_a_step_early(true, step, **kwargs):
    return step == 1 or step % 10 == 0


@replacing(nystrom, "aligned")
def clean_signs_not_aligned(true, Q, old):
    return Q


@replacing(torch.linalg, "solve_triangular")
def clean_lower_cholesky_factor(true, factor, Y, *, upper, left):
    return true(factor.mT, Y, upper=False, left=left)


# QClean.


def _rounding(codes_of: Callable[[torch.Tensor], torch.Tensor]) -> Fault:
    """Return the fault of another rounding on the same grid; x/scale arrives with a block a row."""

    @replacing(qclean, "quantize_int8_foreach")
    def faulty(true, tensors, *, block_size, **kwargs):
        kept = true(tensors, block_size=block_size, **kwargs)
        for x, blocks in zip(tensors, kept, strict=True):
            rows = torch.nn.functional.pad(x.flatten(), (0, -x.numel() % block_size)).view(-1, block_size)
            steps = torch.where(blocks.scales[:, None] > 0, rows / blocks.scales[:, None], 0.0)
            codes = (codes_of(steps) + blocks.zero_points[:, None]).clamp(0, 255)
            blocks.codes.copy_(codes.flatten()[: x.numel()].view_as(x))
        return kept

    return faulty


qclean_rounds_down = _rounding(torch.floor)
qclean_truncates = _rounding(torch.trunc)


@replacing(qclean, "quantize_int8_foreach")
def qclean_rounds_half_a_step_too_high(true, tensors, *, block_size, **kwargs):
    kept = true(tensors, block_size=block_size, **kwargs)
    raised = []
    for x, blocks in zip(tensors, kept, strict=True):
        scales = blocks.scales.repeat_interleave(block_size)[: x.numel()].view_as(x)
        raised.append(x + scales / 2)
    return true(raised, block_size=block_size, **kwargs)


@replacing(_low_rank, "clipped")
def qclean_not_clipped(true, N, bound):
    return N


@contextmanager
def qclean_linear_second_moment() -> Iterator[None]:
    """Second moments in equal steps up to the largest of their block, as first moments are."""

    def quantize(true, xs, *, block_size):
        linear = [quantize_int8(x, block_size=block_size, rounding="nearest") for x in xs]
        kept = true(xs, block_size=block_size)
        return [blocks._replace(codes=steps.codes) for blocks, steps in zip(kept, linear, strict=True)]

    def dequantize(true, codes, absmax, *, block_size):
        return [
            dequantize_int8(each, steps, torch.zeros_like(steps, dtype=torch.uint8), block_size=block_size)
            for each, steps in zip(codes, (largest / 255 for largest in absmax), strict=True)
        ]

    with (
        replacing(qclean, "quantize_dynamic8_foreach")(quantize)(),
        replacing(qclean, "dequantize_dynamic8_foreach")(dequantize)(),
    ):
        yield


@contextmanager
def qclean_linear_second_moment_not_clipped() -> Iterator[None]:
    with qclean_linear_second_moment(), qclean_not_clipped():
        yield


# Shampoo and Muon.


@replacing(shampoo, "_inverse_roots")
def shampoo_exponent_of_a_half(true, factors, p, group):
    return true(factors, 2, group)


@replacing(shampoo, "_damped")
def shampoo_factors_not_bias_corrected(true, item, side):
    return true(item._replace(group=item.group | {"accumulation": "sum"}), side)


@replacing(shampoo, "_whitened")
def shampoo_one_side_left_out(true, blocks, states, full):
    return [state["root_0"] @ M for M, state in zip(blocks, states, strict=True)]


@replacing(shampoo, "_grafted")
def shampoo_not_grafted(true, U, wanted, *, matrix_dims):
    return U


@replacing(muon, "_momentum")
def muon_without_nesterov(true, item):
    return item.state["momentum_buffer"].lerp_(item.grad, 0.05)


@replacing(muon, "_momentum")
def muon_of_the_gradient(true, item):
    return item.grad


@replacing(muon, "_orthogonalized")
def muon_not_orthogonalized(true, N, group):
    return N
