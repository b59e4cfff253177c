"""Decorators keep the types of what they decorate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import perdure

SAMPLE = Path(__file__).with_name("typed_sample.py")


def test_a_users_file_passes_the_strict_checker(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE.read_text())
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file", os.devnull, sample],
        env={**os.environ, "MYPYPATH": str(Path(perdure.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
