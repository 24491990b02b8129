"""The table: every fault, and the cheapest check that must fail while it is planted.

Faults that training does not show (spec: golden steps or exact statements must) have checks of these kinds. Those
that training shows have its gates as well, which are slow but for the early ones.
"""

import pytest

from tests.mutations import checks, faults
from tests.optim.gates import Gate

TABLE = [
    # What Adam's bias corrections do is gone by the end of a run: gates E and F see it.
    (faults.adam_without_bias_correction, checks.first_step_has_size_one),
    (faults.adam_without_bias_correction, checks.GATE_E_KPOP),
    (faults.adam_without_bias_correction, checks.GATE_E_SOAP),
    (faults.adam_without_correction_of_the_second_moment, checks.first_step_has_size_one),
    (faults.adam_without_correction_of_the_second_moment, checks.GATE_E_SOAP),
    (faults.adam_a_step_late, checks.first_step_has_size_one),
    (faults.update_not_rotated_back, checks.soap_follows_its_oracle),
    (faults.kpop_moments_not_carried, checks.kpop_follows_its_oracle),
    (faults.kpop_moments_carried_the_wrong_way, checks.kpop_follows_its_oracle),
    (faults.soap_first_moment_not_carried, checks.soap_follows_its_oracle),
    (faults.soap_first_moment_carried_the_wrong_way, checks.soap_follows_its_oracle),
    (faults.soap_order_flipped_at_every_other_refresh, checks.soap_with_its_period_follows_its_oracle),
    (faults.soap_second_moment_not_reordered, checks.soap_by_qr_follows_its_oracle),
    (faults.okls_without_the_shape_scale, checks.okls_golden_step),
    (faults.okls_without_the_scale_of_the_momentum, checks.okls_golden_step),
    (faults.okls_with_the_variance_of_a_plain_average, checks.okls_golden_step),
    (faults.okls_without_nesterov, checks.okls_golden_step),
    (faults.okls_left_root_left_out, checks.okls_golden_step),
    (faults.okls_factors_of_shampoo, checks.okls_golden_step),
    (faults.okls_shares_swapped, checks.okls_golden_step),
    (faults.okls_first_factors_not_scaled, checks.okls_golden_step),
    (faults.okls_decay_linear_in_the_rate, checks.okls_decay_falls_with_the_square_of_the_rate),
    (faults.okls_peak_of_the_default_in_every_group, checks.okls_decay_falls_with_the_square_of_the_rate),
    (faults.clean_moments_not_carried, checks.clean_follows_its_oracle),
    (faults.clean_moments_not_carried, checks.GATE_E_CLEAN),
    (faults.clean_moments_carried_the_wrong_way, checks.clean_follows_its_oracle),
    (faults.clean_first_moment_of_main_not_carried, checks.clean_follows_its_oracle),
    (faults.clean_second_moment_of_A_not_carried, checks.clean_follows_its_oracle),
    (faults.clean_second_moment_of_B_not_carried, checks.clean_follows_its_oracle),
    (faults.clean_main_part_alone, checks.clean_follows_its_oracle),
    (faults.clean_C_dropped, checks.clean_follows_its_oracle),
    (faults.clean_norm_not_limited, checks.clean_follows_its_oracle),
    (faults.clean_pools_sums, checks.clean_entries_have_unit_size),
    (faults.clean_without_bias_correction, checks.GATE_E_CLEAN),
    (faults.clean_without_correction_of_the_second_moment, checks.GATE_E_CLEAN),
    (faults.clean_refreshed_a_step_early, checks.clean_follows_its_oracle_with_its_published_period),
    (faults.clean_signs_not_aligned, checks.signs_of_eigenvectors_are_kept),
    (faults.clean_lower_cholesky_factor, checks.sketches_of_low_rank_are_exact),
    (faults.qclean_rounds_down, checks.rounding_of_moments_is_unbiased),
    (faults.qclean_truncates, checks.rounding_of_moments_is_unbiased),
    (faults.qclean_rounds_half_a_step_too_high, checks.rounding_of_moments_is_unbiased),
    (faults.qclean_not_clipped, checks.qclean_moves_no_further_than_its_bound),
    (faults.qclean_linear_second_moment, checks.qclean_follows_its_oracle),
    (faults.qclean_linear_second_moment_not_clipped, checks.qclean_without_a_clip_follows_its_oracle),
    (faults.shampoo_exponent_of_a_half, checks.shampoo_golden_step),
    (faults.shampoo_factors_not_bias_corrected, checks.shampoo_follows_its_oracle),
    (faults.shampoo_one_side_left_out, checks.shampoo_golden_step),
    (faults.shampoo_not_grafted, checks.shampoo_follows_its_oracle),
    (faults.muon_without_nesterov, checks.muon_follows_its_oracle),
    (faults.muon_of_the_gradient, checks.muon_follows_its_oracle),
    (faults.muon_not_orthogonalized, checks.muon_follows_its_oracle),
]

SLOW = [
    (faults.kpop_moments_not_carried, checks.GATE_A1),
    (faults.soap_first_moment_not_carried, checks.GATE_A4),
    (faults.soap_first_moment_carried_the_wrong_way, checks.GATE_A4),
    (faults.update_not_rotated_back, checks.GATE_A5),
    (faults.soap_order_flipped_at_every_other_refresh, checks.GATE_A5),
    (faults.okls_without_the_shape_scale, checks.GATE_A6),
    (faults.clean_moments_not_carried, checks.GATE_A7),
    (faults.clean_pools_sums, checks.GATE_A8),
    (faults.qclean_rounds_half_a_step_too_high, checks.GATE_A9),
    (faults.shampoo_exponent_of_a_half, checks.GATE_A10),
    (faults.shampoo_factors_not_bias_corrected, checks.GATE_A10),
]
"""Gates A, with their first seed; that they pass without a fault is tested where they stand."""


def _name(part):
    if isinstance(getattr(part, "__self__", None), Gate):
        return part.__self__.name
    return next((name for name, fault in vars(faults).items() if fault is part), part.__name__)


@pytest.mark.parametrize("check", dict.fromkeys(check for _, check in TABLE), ids=_name)
def test_a_check_passes_without_a_fault(check):
    check()


@pytest.mark.parametrize(("fault", "check"), TABLE, ids=_name)
def test_a_fault_is_noticed(fault, check):
    with fault(), pytest.raises(AssertionError):
        check()


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "check"), SLOW, ids=_name)
def test_a_fault_is_noticed_by_training(fault, check):
    with fault(), pytest.raises(AssertionError):
        check()


def test_every_fault_is_in_the_table():
    prefixes = ("adam_", "update_", "kpop_", "soap_", "okls_", "clean_", "qclean_", "shampoo_", "muon_")
    defined = {name for name in vars(faults) if name.startswith(prefixes)}
    assert {_name(fault) for fault, _ in TABLE} == defined
