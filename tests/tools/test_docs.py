"""What the page about the tools says is executed and compared here."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import tools

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "tools.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
FUNCTIONS = [name for name in tools.__all__ if inspect.isfunction(getattr(tools, name))]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_python_block_of_the_page_runs(number: int, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(BLOCKS[number], encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_tool_says_what_it_guarantees_and_what_not(name: str) -> None:
    tool = getattr(tools, name)
    text = inspect.getdoc(tool) or ""
    assert "Guaranteed:" in text
    assert "Not guaranteed:" in text
    assert re.search(rf"^## .*\b{name}\b", PAGE, re.MULTILINE)
    parameters = inspect.signature(tool).parameters.values()
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in parameters)
    mentioned = [parameter.name for parameter in parameters if f"`{parameter.name}`" not in text + PAGE]
    assert [missing for missing in mentioned if not re.search(rf"\b{missing}\b", PAGE)] == []


def test_the_package_imports_nothing_heavy() -> None:
    code = "import sys, perdure.tools; print(*sorted({'http.client', 'psycopg', 'ssl'} & set(sys.modules)))"
    plain = "import sys, perdure; perdure.agent; print(*sorted({'http.client', 'psycopg', 'ssl'} & set(sys.modules)))"
    assert python(code) == python(plain)


def test_perdure_itself_does_not_import_the_tools() -> None:
    assert python("import sys, perdure; perdure.agent; print('perdure.tools' in sys.modules)") == "False"


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
