from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.engine.session import close_sessions
from perdure.events import Observable
from perdure.resources import registry
from perdure.settings import Settings
from tests.engine.world import world
from tests.resources.things import Things


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store and a world of the test's own, and no resource that an earlier test has named."""
    path = tmp_path / "store" / "perdure.db"
    monkeypatch.delenv("PERDURE_STORE", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_known", {})
    perdure.configure(store=path, quiet=True)
    world.begin(tmp_path)
    yield path
    close_sessions()
    perdure.configure(**dict.fromkeys(Settings.__struct_fields__))


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Things]:
    """One thing of each kind, in the hands of the test."""
    made = Things(tmp_path / "things", monkeypatch)
    yield made
    made.end()


@pytest.fixture
def seen() -> Iterator[list[Observable]]:
    """Every event of the test, in order."""
    found: list[Observable] = []
    unsubscribe = perdure.subscribe(found.append)
    yield found
    unsubscribe()
