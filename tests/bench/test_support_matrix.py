"""The README's matrix is the one that the tables and the results give."""

import json

import pytest

from bench import markdown, support_matrix
from kpop_kernels import backends
from kpop_kernels._schema import OPERATORS


def test_readme_is_current():
    text = markdown.README.read_text()
    assert text == support_matrix.updated(text), f"run {support_matrix.COMMAND}"
    assert support_matrix.PAGE.read_text() == support_matrix.page(), f"run {support_matrix.COMMAND}"


def test_the_overview_has_every_operator_and_says_where_it_ran(monkeypatch):
    monkeypatch.setattr(support_matrix, "_hardware_runs", lambda _: {("symm_mm", "cpu", "x86_64"): "ran"})
    rows = {line.split(" | ")[0].strip("| "): line for line in support_matrix.overview().splitlines()}
    named = "".join(rows)
    assert all(f"`{op}`" in named for op, operator in OPERATORS.items() if operator.single is None)
    assert "**cpu**" in rows["`symm_mm`"] and "**" not in rows["`syrk`"]


def test_every_backend_has_its_evidence():
    assert set(support_matrix.EVIDENCE) == set(backends.NAMES)


def test_a_readme_without_markers_is_refused():
    with pytest.raises(ValueError, match=r"README\.md has no lines"):
        support_matrix.updated("# kpop_kernels\n")


def test_only_what_passed_in_every_dtype_ran(tmp_path):
    results = [
        {"op": "kron_rotate", "backend": "triton", "passed": True},
        {"op": "kron_rotate", "backend": "triton", "passed": False},
        {"op": "gram_ema_", "backend": "triton", "passed": True},
    ]
    report = {"device": "A GPU", "target": "sm_90", "date": "2026-01-02", "results": results}
    (tmp_path / "a-gpu.json").write_text(json.dumps(report))
    ran = support_matrix._hardware_runs(tmp_path)
    assert ran == {("gram_ema_", "triton", "sm_90"): "ran on hardware (A GPU, 2026-01-02)"}
