from pathlib import Path

import pytest

from kpop_kernels.backends.metal import _shader
from tests.emulation.metal_lint import RULES, Source, lint, main

SOURCES = sorted(Path(_shader.__file__).parent.glob("*.metal"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rule_tells_its_snippets_apart(rule):
    assert list(rule.find(Source(rule.bad)))
    assert not list(rule.find(Source(rule.good)))


def test_rule_ids_are_unique_and_confidence_is_stated():
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert {rule.confidence for rule in RULES} == {"high", "medium"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_shipped_sources_keep_all_rules(path):
    assert [str(finding) for finding in lint(path.read_text(encoding="utf-8"))] == []


def test_shipped_sources_exist():
    assert {"quantize_int8.metal", "canary.metal", "exact.metal"} <= {path.name for path in SOURCES}


def test_findings_name_the_line_and_can_be_allowed():
    source = "// one\nconst float k = 2.0f;\n"
    (finding,) = [found for found in lint(source) if found.rule == "program-scope"]
    assert finding.line == 2
    allowed = source.replace(";\n", ";  // lint: allow(program-scope)\n")
    assert "program-scope" not in [found.rule for found in lint(allowed)]


def test_comments_and_strings_are_not_code():
    rules = {found.rule for found in lint("// double x;\n/* throw std::x */\n")}
    assert rules == {"fp-pragmas"}


def test_command_counts_findings(tmp_path, capsys):
    path = tmp_path / "bad.metal"
    path.write_text("const float k = 2.0;\n", encoding="utf-8")
    assert main([str(path)]) == 3
    assert f"{path}:1: float-literal" in capsys.readouterr().out
