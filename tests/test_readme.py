"""The README's example runs as it stands."""

import importlib.util
import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_first_example_trains(capsys):
    text = README.read_text()
    names: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1), names)
    assert names["loss"].item() < 0.5
    assert "both sides" in capsys.readouterr().out


def test_the_demos_table_is_that_of_the_committed_runs():
    path = README.parent / "examples" / "readme_table.py"
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("readme_table", path))
    module.__spec__.loader.exec_module(module)
    assert module.section() in README.read_text()
