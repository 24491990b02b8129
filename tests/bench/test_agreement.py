"""Two runs of one commit: ratios that they do not agree on are marked as noisy."""

import copy

import pytest

from bench.agreement import confirm

MACHINE = {"commit": "a", "device": "x", "threads": 2}


def report(ratio, *, median=200.0, noisy=()):
    row = {
        "op": "syrk",
        "backend": "cpu",
        "shape": [8],
        "dtype": "float32",
        "setting": "",
        "median_us": median,
        "rivals": {"torch": ratio, "steady": 1.0},
        "noisy": list(noisy),
    }
    return {"machine": dict(MACHINE), "rows": [row]}


@pytest.mark.parametrize(
    ("second", "median", "marked"),
    [
        (1.04, 200.0, []),
        (1.06, 200.0, ["torch"]),
        (0.94, 200.0, ["torch"]),
        # The backend is too short, then the rival.
        (2.0, 90.0, []),
        (2.0, 101.0, ["torch"]),
    ],
)
def test_ratios_that_differ_are_marked(second, median, marked):
    later = report(1.0, median=median)
    assert confirm(later, report(second, median=median)) == len(marked)
    assert later["rows"][0]["noisy"] == marked


def test_a_short_rival_does_not_count():
    later = report(0.4)
    assert confirm(later, report(0.8)) == 0


def test_what_was_marked_stays_marked_once():
    later = report(1.0, noisy=["torch"])
    assert confirm(later, report(2.0)) == 0
    assert later["rows"][0]["noisy"] == ["torch"]


def test_rows_and_rivals_of_one_run_only_are_left_alone():
    later, earlier = report(1.0), report(2.0)
    del earlier["rows"][0]["rivals"]["torch"]
    earlier["rows"].append(copy.deepcopy(earlier["rows"][0]) | {"op": "gram_ema_"})
    assert confirm(later, earlier) == 0


@pytest.mark.parametrize("key", MACHINE)
def test_another_commit_or_machine_is_refused(key):
    earlier = report(1.0)
    earlier["machine"][key] = "other"
    with pytest.raises(ValueError, match=f"has {key} other"):
        confirm(report(1.0), earlier)
