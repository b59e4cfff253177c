"""What holds for every example: it is listed, tested, says what is made up, and uses only what is public."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import perdure
from tests.examples.stage import EXAMPLES

SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_an_example_is_listed_and_tested_and_says_what_is_made_up_and_how_to_kill_it(script: Path) -> None:
    assert f"[{script.name}]({script.name})" in (EXAMPLES / "README.md").read_text()
    assert (Path(__file__).parent / f"test_{script.name}").exists()
    header = ast.get_docstring(ast.parse(script.read_text())) or ""
    assert "made up" in header
    assert "kill -9 %1" in header


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_an_example_uses_only_public_names(script: Path) -> None:
    tree = ast.parse(script.read_text())
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert [name for name in modules if name.startswith("perdure")] == ["perdure"]
    used = {_name_in_perdure(node) for node in ast.walk(tree)} - {""}
    assert used <= set(perdure.__all__)


def _name_in_perdure(node: ast.AST) -> str:
    """The name of perdure that this is, as `perdure.name` or from an import; empty for everything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "perdure":
        return node.attr
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("perdure"):
        assert node.module == "perdure"
        assert len(node.names) == 1
        return node.names[0].name
    return ""
