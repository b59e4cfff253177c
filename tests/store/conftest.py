from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure import clock
from tests.postgres import emptied_schema
from tests.store.places import PORTABLE, STORES, MemoryPlace, PostgresPlace, SqlitePlace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perdure.store.protocol import Store
    from tests.store.places import Place


class ManualClock:
    """Time that passes only when a test says so."""

    def __init__(self, place: Place | None = None) -> None:
        self.place = place
        self.wall = 1_000_000.0
        self.boot = 500.0

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.boot += seconds
        if isinstance(self.place, PostgresPlace):
            self.place.let_pass(seconds)


@pytest.fixture
def manual_clock(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ManualClock:
    """Time in the hands of the test, also for a server, which tells it by itself."""
    manual = ManualClock(request.getfixturevalue("place") if "place" in request.fixturenames else None)
    monkeypatch.setattr(clock, "wall_seconds", lambda: manual.wall)
    monkeypatch.setattr(clock, "boot_seconds", lambda: manual.boot)
    return manual


@pytest.fixture(params=[*STORES, pytest.param(PORTABLE, marks=pytest.mark.exhaustive)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        yield MemoryPlace()
        return
    if request.param != "sqlite":
        with emptied_schema(options="portable=true" if request.param == PORTABLE else "") as url:
            postgres = PostgresPlace(url)
            yield postgres
            postgres.close()
        return
    sqlite = SqlitePlace(tmp_path / "perdure.db")
    yield sqlite
    sqlite.close()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.fixture
def other(place: Place) -> Store:
    """A second worker on the same records."""
    return place.open()
