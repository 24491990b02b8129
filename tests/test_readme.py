"""The README's example runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_first_example_trains(capsys):
    text = README.read_text()
    names: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1), names)
    assert names["loss"].item() < 0.5
    assert "both sides" in capsys.readouterr().out
