"""A saver in every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.adapters.langgraph import PerdureSaver
from tests.postgres import schema_url


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses its power, and the disk is shared by many tests."""
    monkeypatch.setenv("PERDURE_DURABILITY", "process")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path, unsynced: None) -> Iterator[str]:
    """Where a store is that nobody else uses."""
    if request.param == "postgres":
        with schema_url() as url:
            yield url
    else:
        yield "memory:" if request.param == "memory" else str(tmp_path / "saver.db")


@pytest.fixture
def saver(location: str) -> Iterator[PerdureSaver]:
    with PerdureSaver(location) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path, unsynced: None) -> Path:
    """A store in a file, for tests that look at its rows."""
    return tmp_path / "saver.db"


@pytest.fixture
def in_file(path: Path) -> Iterator[PerdureSaver]:
    with PerdureSaver(path) as opened:
        yield opened
