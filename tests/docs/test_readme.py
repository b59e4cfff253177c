"""What the documents say is executed or compared here, so that they cannot drift from the code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.cli import COMMANDS
from perdure.settings import Settings
from tests.docs.transcripts import agrees, perform, steps_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NEEDED = ("demo", "show", "resume", "inbox", "answer", "settle", "cancel", "verify", "repair")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_python_block_of_the_readme_runs(number: int, tmp_path: Path) -> None:
    script = tmp_path / f"block_{number}.py"
    script.write_text(BLOCKS[number], encoding="utf-8")
    done = _python(str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_the_first_block_prints_its_result_and_keeps_one_run(tmp_path: Path) -> None:
    script = tmp_path / "outreach.py"
    script.write_text(BLOCKS[0], encoding="utf-8")
    done = _python(str(script), cwd=tmp_path)
    assert done.stdout == "sent to ada@example.com\n"
    assert (tmp_path / ".perdure" / "perdure.db").exists()


TRANSCRIPTS = re.findall(r"^```console\n.*?^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(TRANSCRIPTS)))
def test_every_command_of_the_readme_prints_what_it_says(number: int, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "first.py", tmp_path)
    for said, printed in perform(steps_of(TRANSCRIPTS[number]), tmp_path):
        assert agrees(said.printed, printed), f"$ {said.command}\n{printed}"


def test_the_readme_kills_a_script_of_ones_own() -> None:
    typed = re.findall(r"^\$ (.*)$", "".join(TRANSCRIPTS), re.MULTILINE)
    assert {"python first.py &", "kill -9 %1", "python first.py"} <= set(typed)


def test_make_demo_is_the_first_transcript(tmp_path: Path) -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndemo:")[2].partition("\n\n")[0]
    typed = re.findall(r"perdure \w+", README.partition("```console\n")[2].partition("```")[0])
    assert re.findall(r"echo '\$\$ (perdure \w+)'; ", recipe) == ["perdure demo", "perdure resume"]
    assert typed[0] == "perdure demo"
    assert "perdure resume" in typed


def test_every_setting_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"\bPERDURE_([A-Z_]+)", README))
    assert "STORE" in named
    assert {name.lower() for name in named} <= set(Settings.__struct_fields__)


def test_every_command_that_the_readme_names_exists() -> None:
    typed = set(re.findall(r"^\$ perdure ([\w-]+)", README, re.MULTILINE))
    named = set(re.findall(r"`perdure ([\w-]+)", README)) | typed
    assert {"demo", "resume"} <= named
    assert named <= set(COMMANDS)


def test_what_a_newcomer_needs_is_in_the_readme() -> None:
    assert [command for command in NEEDED if f"`perdure {command}" not in README] == []


def test_the_top_of_the_package_is_the_documented_surface() -> None:
    documents = README + "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    names = set(perdure.__all__) - {"__version__"}
    assert [name for name in names if not re.search(rf"\b{name}\b", documents)] == []
    assert all(hasattr(perdure, name) for name in perdure.__all__)
    assert sorted(dir(perdure)) == sorted(perdure.__all__)


def test_the_architecture_names_every_module_of_the_engine_and_the_store() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = ("engine", "store")
    names = [
        path.name
        for package in packages
        for path in (ROOT / "src" / "perdure" / package).glob("*.py")
        if path.name != "__init__.py"
    ]
    assert len(names) > 15
    assert [name for name in names if name not in text] == []


def _python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
