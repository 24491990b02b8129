"""The page of errors: its rows, and that an error beyond what is stated is seen."""

from importlib.util import find_spec

import pytest
import torch

from bench import accuracy, emulated
from bench.case import SPECTRA
from kpop_kernels import backends
from tests.emulation import cuda_emulator, metal_emulator
from tests.emulation.tools import require_tool

FEW = (1, 8)
HERE = ("cpu", "composite")


def require_emulation(request, name):
    found = {
        "triton": find_spec("triton") is not None,
        "cuda": cuda_emulator.available(),
        "metal": metal_emulator.find_compiler() is not None,
    }
    require_tool(request, f"the emulation of {name}", found.get(name, True))


def rows_of(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line.split(" | ")[:3] for line in lines if "n = " not in line and "---" not in line]


def test_every_route_is_measured_on_every_spectrum():
    with backends.trace() as served:
        cells = dict(accuracy.measure(HERE, FEW))
    each = len(accuracy.CONDITIONS) * len(SPECTRA) * len(FEW)
    of_cpu = sum(route.backend == "cpu" for route in accuracy.ROUTES)
    of_composite = sum(route.backend == "composite" for route in accuracy.ROUTES)
    polar = len(accuracy.POLAR_ROWS) * len(FEW)
    assert served == {
        ("inverse_root", "cpu"): each * of_cpu,
        ("inverse_root", "composite"): each * of_composite,
        ("newton_schulz", "cpu"): polar,
    }
    assert len(cells) == each * (of_cpu + of_composite) + polar


@pytest.mark.parametrize("name", emulated.NAMES)
def test_a_backend_of_a_gpu_is_measured_in_its_emulation(request, name, monkeypatch):
    require_emulation(request, name)
    ran, operator = [], emulated._guarded

    def watched(backend, op):
        function = operator(backend, op)
        return lambda *args, **options: ran.append(backend) or function(*args, **options)

    monkeypatch.setattr(emulated, "_guarded", watched)
    monkeypatch.setattr(accuracy, "CONDITIONS", (1e3,))
    monkeypatch.setattr(accuracy, "SPECTRA", ("log",))
    with backends.trace() as served:
        cells = dict(accuracy.measure([name], [9]))
    routes = [route for route in accuracy.ROUTES if route.backend == name]
    assert ran == [name] * len(routes) and not served
    assert len(cells) == len(ran) and not any("**" in cell for cell in cells.values())


def test_the_committed_page_has_the_rows_of_the_command():
    committed = accuracy.DOCUMENT.read_text()
    cells = accuracy.read(committed)
    assert accuracy.document(cells) == committed
    assert rows_of(accuracy.document({})) == rows_of(committed)


def test_every_cell_of_the_committed_page_is_measured_or_left_out_for_a_reason():
    cells = accuracy.read(accuracy.DOCUMENT.read_text())
    for condition in accuracy.CONDITIONS:
        for spectrum in SPECTRA:
            for route in accuracy.ROUTES:
                for n in accuracy.SIZES:
                    cell = cells[f"Condition number {condition:g}", f"{spectrum} | {route.name}", n]
                    assert (cell != accuracy.NOT_MEASURED) == route.is_measured(n, condition)


def test_every_error_on_the_committed_page_is_within_what_is_stated():
    cells = accuracy.read(accuracy.DOCUMENT.read_text())
    assert len(cells) > 40 * len(accuracy.SIZES)
    assert not any("**" in cell for cell in cells.values())


def test_cells_that_are_not_measured_stay_on_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(accuracy, "CONDITIONS", (1e3,))
    page = tmp_path / "accuracy.md"
    kept = {("Condition number 1000", "log | fp32, triton", 8): "1.2e-34"}
    page.write_text(accuracy.document(kept))
    accuracy.main(page, ["--backends", "composite", "--sizes", "8"])
    cells = accuracy.read(page.read_text())
    assert {key: cells[key] for key in kept} == kept
    assert float(cells["Condition number 1000", "log | fp32, composite", 8]) <= 2e-4
    assert cells["Condition number 1000", "log | fp32, composite", 31] == accuracy.NOT_MEASURED


@pytest.mark.parametrize("route", accuracy.ROUTES, ids=lambda route: route.name)
def test_an_error_beyond_what_is_stated_is_bold(request, route, monkeypatch):
    require_emulation(request, route.backend)
    right = accuracy.frobenius_error
    monkeypatch.setattr(accuracy, "frobenius_error", lambda root, expected: right(root * 1.5, expected))
    monkeypatch.setattr(accuracy, "CONDITIONS", (1e3,))
    cells = [cell for key, cell in accuracy.measure([route.backend], FEW, (route,)) if "Polar" not in key[0]]
    assert len(cells) == len(SPECTRA) * len(FEW)
    assert all(cell.startswith("**") for cell in cells)


def test_root_of_a_route_is_the_public_one():
    A, expected = accuracy._roots(20, 1e3, "log")
    assert accuracy.ROUTES[0].error(A, expected) <= 2e-4
    assert torch.equal(A, A.mT)
