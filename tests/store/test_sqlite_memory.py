"""What a process keeps in memory of the runs in its file: nothing of those that it does not hold."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from perdure.errors import LeaseLost
from perdure.records import RunState
from perdure.store.sqlite import SqliteStore
from tests.store.journals import PARDON, claimed, created, ending, held_run, land, step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with contextlib.closing(SqliteStore(tmp_path / "perdure.db")) as opened:
        yield opened


def kept(store: SqliteStore) -> set[str]:
    return set(store._rows)  # noqa: SLF001 - nothing but memory shows it


def test_run_that_is_only_accepted_is_not_kept(store: SqliteStore) -> None:
    created(store)
    assert kept(store) == set()


@pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.WAITING, RunState.FAILED])
def test_run_is_kept_while_it_is_held(store: SqliteStore, state: RunState) -> None:
    run = land(store, step(held_run(store)))
    assert kept(store) == {"run-1"}
    land(store, ending(run, state))
    assert kept(store) == set()


def test_run_that_another_took_over_is_not_kept(store: SqliteStore) -> None:
    run = held_run(store)
    claimed(store, "run-1", PARDON)
    (outcome,) = store.append_all([step(run)], power=True)
    assert isinstance(outcome, LeaseLost)
    assert kept(store) == set()
