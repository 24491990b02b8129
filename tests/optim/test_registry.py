from pathlib import Path

import pytest

from tests.optim.registry import CASES

SUITE = Path(__file__).parent / "conventions"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_declared_departure_is_a_test_of_the_suite(case):
    source = "".join(path.read_text() for path in SUITE.glob("test_*.py"))
    assert [name for name in case.departures if f"def {name}(case" not in source] == []


def test_an_optimizer_of_this_package_departs_from_nothing():
    assert [case.name for case in CASES if case.ours and case.departures] == []


def test_the_baseline_proves_that_the_stronger_checks_can_fail():
    assert any(case.departures for case in CASES)
