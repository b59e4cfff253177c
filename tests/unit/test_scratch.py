"""The tests' files in memory are gone with their test run; those of one that failed are there for a while."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from tests import scratch

LONG_AGO = time.time() - 2 * 3600


def left(memory: Path, name: str, at: float) -> Path:
    folder = memory / f"perdure-tests-{name}"
    folder.mkdir()
    (folder / "alive").touch()
    os.utime(folder / "alive", (at, at))
    return folder


def test_what_test_runs_left_is_removed_unless_they_go_on_or_failed_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path)
    old, recent, held = (left(tmp_path, "old", LONG_AGO), left(tmp_path, "new", time.time()), left(tmp_path, "held", 0))
    stranger = tmp_path / "somebody-else"
    stranger.mkdir()
    with (held / "alive").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        scratch._sweep()  # noqa: SLF001 - what a test run does first
    assert not old.exists()
    assert all(folder.exists() for folder in (recent, held, stranger))


def test_whoever_names_a_place_for_temporary_files_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path)
    monkeypatch.setenv("TMPDIR", "/somewhere")
    scratch.begin()
    assert os.environ["TMPDIR"] == "/somewhere"
    assert not list(tmp_path.iterdir())
