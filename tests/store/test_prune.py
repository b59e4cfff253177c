"""Removing runs that ended long ago: whole or not at all, never one that is needed, and nothing of it looks like a loss."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import Raw

from perdure.errors import CheckpointCorrupt, UnknownRun
from perdure.records import Ancestor, Ended, Kind, Opened, Record, Run, RunState, Started, WaitReason, extended, write_body
from perdure.store import blobs
from perdure.store.lease import Park, write_park
from perdure.store.protocol import Finding, Old, Pruned
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite.presence import read_mark
from tests.store.child import Child
from tests.store.journals import (
    AGENT,
    append,
    claimed,
    created,
    ending,
    held_run,
    land,
    large_step,
    letter,
    step,
)
from tests.store.places import SqlitePlace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perdure.store.protocol import Store
    from tests.store.places import Place

LATE = 10_000.0
EVERYTHING = Old(LATE)
FAILED_TOO = Old(LATE, failed=True)
CONTENT = b"a page of text " * 3000


def ended(store: Store, run_id: str = "run-1", state: RunState = RunState.COMPLETED, **fields: Any) -> Run:
    return land(store, ending(land(store, step(held_run(store, run_id, **fields))), state))


def prune(store: Store, old: Old = EVERYTHING) -> Pruned:
    parts = [msgspec.structs.astuple(part) for part in store.prune(old)]
    return Pruned(*(sum(numbers) for numbers in zip(*parts, strict=True))) if parts else Pruned()


def kept(store: Store) -> set[str]:
    return {run.run_id for run in store.list_runs()}


def child_of(store: Store, parent: str, run_id: str) -> Run:
    """A child run that is held."""
    run = Run(run_id, f"name-of-{run_id}", AGENT, b"", "power", 200.0, 200.0)
    body = Started(agent=AGENT, arguments=Raw(b"{}"), code="v1", lineage=(Ancestor(parent, AGENT, ""),))
    first = Record(0, Kind.STARTED, "", AGENT, b"", 200.0, 0, write_body(body))
    after, (record,) = extended(run, at=200.0, records=(first,))
    store.create_run(after, record)
    return claimed(store, run_id)


class TestWhatGoes:
    def test_finished_runs_go_whole(self, store: Store, other: Store) -> None:
        ended(store, "run-1")
        ended(store, "run-2", RunState.CANCELLED)
        store.post(letter("run-1"))
        would = other.find_prunable(EVERYTHING)
        assert [run.run_id for run in would.runs] == ["run-1", "run-2"]
        removed = prune(store)
        assert removed == Pruned(2, would.records, would.mail, would.blobs, would.size) == Pruned(2, 8, 1, 0, removed.size)
        assert removed.size > 0
        assert kept(other) == set()
        assert other.read_mail("run-1") == []
        with pytest.raises(UnknownRun):
            other.load_journal("run-1")
        assert prune(store) == Pruned()

    def test_looking_removes_nothing(self, store: Store, other: Store) -> None:
        run = ended(store)
        for _ in range(3):
            assert store.find_prunable(EVERYTHING).runs == (run,)
        assert other.read_run("run-1") == run

    def test_a_run_goes_by_its_end_and_not_by_its_beginning(self, store: Store) -> None:
        run = ended(store, at=100.0)
        assert run.updated_at > 100.0
        assert prune(store, Old(run.updated_at)) == Pruned()
        assert prune(store, Old(run.updated_at + 0.5)).runs == 1

    @pytest.mark.parametrize("old", [EVERYTHING, FAILED_TOO])
    def test_unfinished_runs_stay(self, store: Store, old: Old) -> None:
        created(store, "queued")
        held_run(store, "running")
        for reason in WaitReason:
            run = held_run(store, f"waits-{reason}")
            land(store, append(run, Kind.NOTE, Ended("waiting"), state=RunState.WAITING, reason=reason, holder=""))
        before = {run_id: store.load_whole(run_id) for run_id in kept(store)}
        assert len(before) == 8
        assert prune(store, old) == Pruned()
        assert {run_id: store.load_whole(run_id) for run_id in kept(store)} == before

    def test_failed_runs_go_only_when_asked_for(self, store: Store) -> None:
        ended(store, "run-1", RunState.FAILED)
        would = store.find_prunable(EVERYTHING)
        assert (would.runs, would.failed) == ((), 1)
        assert prune(store) == Pruned()
        assert prune(store, FAILED_TOO).runs == 1
        assert kept(store) == set()


class TestWhatIsNeeded:
    def test_the_parent_of_an_unfinished_run_stays(self, store: Store) -> None:
        ended(store, "parent")
        child = child_of(store, "parent", "child")
        assert store.find_prunable(EVERYTHING).needed == 1
        assert prune(store) == Pruned()
        land(store, ending(child))
        assert prune(store).runs == 2

    @pytest.mark.parametrize("old", [EVERYTHING, FAILED_TOO])
    @pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.FAILED])
    def test_the_child_of_an_unfinished_run_stays(self, store: Store, state: RunState, old: Old) -> None:
        parent = held_run(store, "parent")
        parent = land(store, append(parent, Kind.WAIT, Opened("child", child="child"), key=".1"))
        land(store, ending(child_of(store, "parent", "child"), state))
        assert prune(store, old) == Pruned()
        land(store, ending(parent))
        assert prune(store, FAILED_TOO).runs == 2

    def test_a_run_stays_as_long_as_the_one_that_goes_on_in_its_place(self, store: Store) -> None:
        """Who asks for the first by its id is led to the last."""
        for run_id, following in (("run", "run~2"), ("run~2", "run~3")):
            run = held_run(store, run_id)
            park = write_park(Park(code="continued", message=following))
            land(store, ending(run, detail=park))
        last = held_run(store, "run~3", at=500.0)
        assert prune(store) == Pruned()
        last = land(store, ending(last))
        assert prune(store, Old(last.updated_at)) == Pruned()
        assert prune(store).runs == 3

    def test_what_goes_on_in_the_place_of_a_child_stays_with_it(self, store: Store) -> None:
        parent = held_run(store, "parent")
        land(store, append(parent, Kind.WAIT, Opened("child", child="child"), key=".1"))
        child = child_of(store, "parent", "child")
        land(store, ending(child, detail=write_park(Park(code="continued", message="child~2"))))
        ended(store, "child~2")
        assert prune(store) == Pruned()

    def test_a_failed_parent_goes_before_the_child_it_would_start_again(self, store: Store) -> None:
        parent = held_run(store, "parent", at=300.0)
        parent = land(store, append(parent, Kind.WAIT, Opened("child", child="child"), key=".1"))
        land(store, ending(child_of(store, "parent", "child")))
        land(store, ending(parent, RunState.FAILED))
        assert [run.run_id for run in store.find_prunable(FAILED_TOO).runs] == ["parent", "child"]

    def test_damage_that_could_hide_a_reference_stops_everything(self, store: Store, place: Place) -> None:
        ended(store, "run-1")
        held_run(store, "run-2")
        place.damage_run("run-2", state="completed")
        for remove in (store.find_prunable, prune_of(store)):
            with pytest.raises(CheckpointCorrupt, match="run-2"):
                remove(EVERYTHING)
        assert store.read_run("run-1") is not None


def prune_of(store: Store) -> Any:
    return lambda old: list(store.prune(old))


class TestBlobs:
    def test_go_once_nobody_refers_to_them(self, store: Store) -> None:
        address = blobs.pack(CONTENT)[0]
        other_address = blobs.pack(CONTENT + b"!")[0]
        one = land(store, large_step(held_run(store, "run-1"), CONTENT))
        land(store, ending(land(store, large_step(one, CONTENT + b"!"))))
        two = land(store, large_step(held_run(store, "run-2"), CONTENT))
        assert store.find_prunable(EVERYTHING).blobs == 1
        assert prune(store).blobs == 1
        assert store.load_blob(address) == CONTENT
        with pytest.raises(CheckpointCorrupt, match="missing"):
            store.load_blob(other_address)
        land(store, ending(two))
        assert prune(store).blobs == 1
        with pytest.raises(CheckpointCorrupt, match="missing"):
            store.load_blob(address)

    def test_of_records_set_aside_stay_with_their_run(self, store: Store, place: Place) -> None:
        run = land(store, step(held_run(store)))
        land(store, ending(land(store, large_step(run, CONTENT))))
        place.damage_record("run-1", 2)
        store.repair_run("run-1")
        ended(store, "run-2")
        assert prune(store) == Pruned(1, 4, 0, 0, prune(store).size or store_size())
        assert store.load_blob(blobs.pack(CONTENT)[0]) == CONTENT


def store_size() -> Any:
    class Anything:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    return Anything()
