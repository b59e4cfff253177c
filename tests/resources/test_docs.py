"""The page on resources: every block runs, and every name and option is there."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure import resources

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "resources.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
PRINTED = ["report.md", "3", "index.html <p>owls</p> copy.html", "['about.html', 'index.html']"]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_block_runs_and_prints_what_it_should(number: int, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(BLOCKS[number], encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == PRINTED[number]


def test_every_kind_and_every_option_is_named() -> None:
    kinds = [name for name in resources.__all__ if name.islower()]
    assert [name for name in kinds if f"`resources.{name}(" not in PAGE] == []
    for function in (perdure.track, perdure.workdir, perdure.artifact):
        options = list(inspect.signature(function).parameters)[1:]
        assert [option for option in options if f"{option}=" not in PAGE] == [], function
