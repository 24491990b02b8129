import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"

# The examples are programs, not a package: they find each other the way `python examples/train_lm.py` does.
sys.path.insert(0, str(EXAMPLES))
