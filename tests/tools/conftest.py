from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.engine.session import close_sessions
from perdure.settings import Settings
from tests.engine.manual_clock import ManualClock
from tests.tools.server import Server
from tests.tools.workbench import Workbench


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store of the test's own, shared with the processes it starts."""
    path = tmp_path / "store" / "perdure.db"
    monkeypatch.delenv("PERDURE_STORE", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    perdure.configure(store=path)
    yield path
    close_sessions()
    perdure.configure(**dict.fromkeys(Settings.__struct_fields__))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder the tools act in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def bench(tmp_path: Path, work: Path) -> Iterator[Workbench]:
    made = Workbench(tmp_path, work)
    yield made
    made.end()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def manual_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """A clock in the hands of the test; what the engine would sleep is added to it instead."""
    return ManualClock(monkeypatch)
