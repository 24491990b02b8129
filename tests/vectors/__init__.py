"""Numbers that every implementation must reproduce."""

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def golden() -> dict[str, Any]:
    """Return the committed vectors by name."""
    return json.loads((Path(__file__).parent / "golden.json").read_text())
