"""What a commit costs the device: counted at the border to the kernel."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_TRACE = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync"]


@functools.cache
def why_not_traceable() -> str:
    if shutil.which("strace") is None:
        return "strace is not installed, so syncs cannot be counted"
    tried = subprocess.run([*_TRACE, "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.strip()}"


def syncs(path: Path, verb: str, count: int) -> int:
    """How often a process that commits this many times asks the device to keep what it wrote."""
    report = path.with_suffix(".trace")
    completed = subprocess.run(
        [*_TRACE, "-o", str(report), sys.executable, "-m", "tests.store.child", str(path)],
        input=f"create run-1\nclaim run-1\n{verb} run-1 {count}\n",
        cwd=_ROOT,
        env={"PYTHONPATH": f"{_ROOT}:{_ROOT / 'src'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.splitlines()[-1] == str(count + 2)
    return sum("sync(" in line for line in report.read_text().splitlines())


@pytest.fixture(autouse=True)
def traceable() -> None:
    if why_not_traceable():
        pytest.skip(why_not_traceable())


def test_every_power_commit_is_synced_once(tmp_path: Path) -> None:
    few, many = syncs(tmp_path / "few.db", "step", 20), syncs(tmp_path / "many.db", "step", 120)
    assert many - few == 100


def test_process_commit_is_not_synced(tmp_path: Path) -> None:
    few, many = syncs(tmp_path / "few.db", "quick_step", 20), syncs(tmp_path / "many.db", "quick_step", 120)
    assert many == few
