import pytest

from tests.optim.registry import CASES


def pytest_generate_tests(metafunc):
    if "case" not in metafunc.fixturenames:
        return
    metafunc.parametrize("case", [_param(case, metafunc.function.__name__) for case in CASES])


def _param(case, test_name):
    """A declared departure must be a failed assertion: passing, or failing otherwise, is an error."""
    reason = case.departures.get(test_name)
    marks = () if reason is None else pytest.mark.xfail(reason=reason, strict=True, raises=AssertionError)
    return pytest.param(case, id=case.name, marks=marks)
