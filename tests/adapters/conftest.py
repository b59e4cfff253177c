"""A saver in every store.

Frameworks are imported by the tests that use them: together they take longer to load than all other tests to collect.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.postgres import emptied_schema

if TYPE_CHECKING:
    from perdure.adapters.langgraph import PerdureSaver


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses its power, and the disk is shared by many tests."""
    monkeypatch.setenv("PERDURE_DURABILITY", "process")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path, unsynced: None) -> Iterator[str]:
    """Where a store is that nobody else uses."""
    if request.param == "postgres":
        with emptied_schema() as url:
            yield url
    else:
        yield "memory:" if request.param == "memory" else str(tmp_path / "saver.db")


@pytest.fixture
def saver(location: str) -> Iterator[PerdureSaver]:
    from perdure.adapters.langgraph import PerdureSaver

    with PerdureSaver(location) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path, unsynced: None) -> Path:
    """A store in a file, for tests that look at its rows."""
    return tmp_path / "saver.db"


@pytest.fixture
def in_file(path: Path) -> Iterator[PerdureSaver]:
    from perdure.adapters.langgraph import PerdureSaver

    with PerdureSaver(path) as opened:
        yield opened
