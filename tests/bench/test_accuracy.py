"""The page of errors: its rows, and that an error beyond what is stated is seen."""

import pytest
import torch

from bench import accuracy
from bench.case import SPECTRA
from kpop_kernels import backends

FEW = (1, 8)


def table_rows(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line for line in lines if "n = " not in line and "---" not in line]


def labels(text):
    return [line.split(" | ")[:3] for line in table_rows(text)]


def test_every_route_is_measured_on_every_spectrum():
    with backends.trace() as served:
        rows = table_rows(accuracy.document(FEW))
    roots = len(accuracy.CONDITIONS) * len(SPECTRA) * len(accuracy.ROUTES)
    polar = 2 * len(accuracy.ASPECTS) * 2
    assert len(rows) == roots + polar
    of_cpu = sum(route.backend == "cpu" for route in accuracy.ROUTES)
    assert served["inverse_root", "cpu"] == roots * len(FEW) * of_cpu / len(accuracy.ROUTES)
    assert served["inverse_root", "composite"] + served["inverse_root", "cpu"] == roots * len(FEW)
    assert served == {**served, ("newton_schulz", "cpu"): polar * len(FEW)}


def test_the_committed_page_has_the_rows_of_the_command():
    committed = accuracy.DOCUMENT.read_text()
    assert labels(committed) == labels(accuracy.document(FEW))
    assert all(f"n = {n} |" in committed for n in accuracy.SIZES)


def test_every_error_on_the_committed_page_is_within_what_is_stated():
    rows = [line for line in accuracy.DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 40
    assert not any("**" in row for row in rows)


@pytest.mark.parametrize("route", accuracy.ROUTES, ids=lambda route: route.name)
def test_an_error_beyond_what_is_stated_is_bold(route, monkeypatch):
    backend = backends.get(route.backend)
    right = backend.inverse_root

    def wrong(A, **options):
        root, bound = right(A, **options)
        return root * 1.5, bound

    monkeypatch.setitem(backend._guarded, "inverse_root", wrong)
    monkeypatch.setattr(accuracy, "ROUTES", (route,))
    rows = list(accuracy._root_lines(1e3, FEW))[1:]
    assert len(rows) == len(SPECTRA)
    assert all(cell.startswith("**") for row in rows for cell in row[3:])


def test_root_of_a_route_is_the_public_one():
    A, expected = accuracy._roots(20, 1e3, "log")
    assert accuracy.ROUTES[0].error(A, expected) <= 2e-4
    assert torch.equal(A, A.mT)
