from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.engine.session import close_sessions
from perdure.events import Observable
from perdure.settings import Settings
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store and a world of the test's own."""
    path = tmp_path / "store" / "perdure.db"
    monkeypatch.delenv("PERDURE_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    perdure.configure(store=path)
    world.begin(tmp_path)
    yield path
    close_sessions()
    perdure.configure(**dict.fromkeys(Settings.__struct_fields__))


@pytest.fixture
def manual_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """A clock in the hands of the test; what the engine would sleep is added to it instead."""
    return ManualClock(monkeypatch)


@pytest.fixture
def seen() -> Iterator[list[Observable]]:
    """Every event of the test, in order."""
    found: list[Observable] = []
    unsubscribe = perdure.subscribe(found.append)
    yield found
    unsubscribe()
