"""Checks Metal sources for what the emulation cannot notice: Apple's compiler is stricter than the host's.

``python -m tests.emulation.metal_lint FILE...`` prints the findings. A line with ``// lint: allow(rule)`` is
exempt from that rule.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.emulation.metal_lint_kernels import KERNEL_RULES
from tests.emulation.metal_lint_language import LANGUAGE_RULES
from tests.emulation.metal_lint_source import Rule, Source

RULES: tuple[Rule, ...] = (*LANGUAGE_RULES, *KERNEL_RULES)


@dataclass(frozen=True, order=True)
class Finding:
    """A line that breaks a rule."""

    line: int
    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.line}: {self.rule}: {self.sentence}"


def lint(text: str) -> list[Finding]:
    """Return what breaks a rule in a Metal source, in the order of its lines."""
    source = Source(text)
    lines = text.split("\n")
    found = {
        Finding(line, rule.id, rule.sentence)
        for rule in RULES
        for line in map(source.line, rule.find(source))
        if f"lint: allow({rule.id})" not in lines[line - 1]
    }
    return sorted(found)


def main(paths: list[str]) -> int:
    """Print the findings of all files and return how many there are."""
    findings = [(path, finding) for path in paths for finding in lint(Path(path).read_text(encoding="utf-8"))]
    for path, finding in findings:
        print(f"{path}:{finding}")
    return len(findings)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
