from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.engine.session import close_sessions
from perdure.events import Observable
from perdure.settings import Settings
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world
from tests.postgres import schema_url


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store and a world of the test's own; PERDURE_TEST_ENGINE=postgres has them on a server."""
    path = tmp_path / "store" / "perdure.db"
    monkeypatch.delenv("PERDURE_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    on_server = os.environ.get("PERDURE_TEST_ENGINE") == "postgres"
    monkeypatch.delenv("PERDURE_TEST_ENGINE", raising=False)
    with schema_url() if on_server else contextlib.nullcontext(path) as location:
        perdure.configure(store=location)
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
