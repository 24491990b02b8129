"""Table 3 of the Clean paper, from the states that the optimizers create."""

import pytest

from bench import __main__ as command_line
from bench.paper_table import MODELS, ROWS, UNIT, assumed_bytes, created
from tests.vectors import golden

GOLDEN = golden()["optimizer_state_bytes"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("index", range(len(MODELS)), ids=[sizes.name for sizes in MODELS])
def test_the_memory_of_an_optimizer_is_that_of_the_table(row, index):
    expected = GOLDEN["rows"][row.name.lower()]
    assert tuple(expected["paper"]) == row.published
    found = assumed_bytes(created(row, MODELS[index]))
    assert found / UNIT == pytest.approx(expected["calc"][index], abs=1e-3)
    assert found / UNIT == pytest.approx(expected["paper"][index], rel=0.01)
    if "bytes" in expected:
        assert found == expected["bytes"][index]


@pytest.mark.parametrize(
    ("sizes", "count"),
    list(zip(MODELS, ("llama_350m_parameters", "llama_1p3b_parameters"), strict=True)),
    ids=("350M", "1.3B"),
)
def test_the_models_have_the_published_number_of_parameters(sizes, count):
    assert sum(p.numel() for p in sizes.build().parameters()) == GOLDEN[count]


def test_the_command_prints_a_row_for_each_optimizer(capsys):
    assert command_line.main(["--paper-table"]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [row.name for row in ROWS]
