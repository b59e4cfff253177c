from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure import clock
from tests.store.places import MemoryPlace, SqlitePlace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perdure.store.protocol import Store
    from tests.store.places import Place


class ManualClock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.wall = 1_000_000.0
        self.boot = 500.0

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.boot += seconds


@pytest.fixture
def manual_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    manual = ManualClock()
    monkeypatch.setattr(clock, "wall_seconds", lambda: manual.wall)
    monkeypatch.setattr(clock, "boot_seconds", lambda: manual.boot)
    return manual


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        yield MemoryPlace()
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
