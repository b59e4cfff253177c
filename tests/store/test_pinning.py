"""Pinning: workers of one version alone are given a run, whatever state it is in, and nobody's journal is harmed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from perdure.bodies import Delivery, Ended, read_body
from perdure.errors import JournalDiverged, LeaseLost, RunHeld, RunMoved, RunPinned, UnknownRun, UsageError
from perdure.records import Kind, RunState, WaitReason
from perdure.store.lease import Park, read_park, write_park
from perdure.store.mover import Mover
from perdure.store.protocol import Finding
from tests.store.journals import (
    AGENT,
    PARDON,
    append,
    claimed,
    created,
    ending,
    held_run,
    land,
    letter,
    outcome_of,
    step,
)
from tests.store.places import MemoryPlace, asks_who_lives

if TYPE_CHECKING:
    from perdure.records import Run
    from perdure.store.protocol import Store
    from tests.store.places import Place


@pytest.fixture
def team(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, Store]:
    """A worker of each version, and one without."""
    made = {}
    for version in ("v1", "v2", ""):
        monkeypatch.setenv("PERDURE_VERSION", version)
        made[version] = place.open()
        assert made[version].join().version == version
    return made


def given(store: Store) -> list[str]:
    """What a worker on this store could take now."""
    ready = store.list_ready(agents=(AGENT,), version=store.join().version, now=1e12, stall_seconds=120.0)
    return [run.run_id for run in ready]


def diverged(store: Store, run_id: str = "run-1") -> Run:
    """A run that parked because the code had changed."""
    run = land(store, step(held_run(store, run_id)))
    park = write_park(Park(code=JournalDiverged.code, message="no longer matches"))
    body = Ended(state=RunState.WAITING, reason=WaitReason.PARKED, code=JournalDiverged.code)
    changes: dict[str, Any] = {"state": RunState.WAITING, "reason": WaitReason.PARKED, "detail": park, "holder": ""}
    return land(store, append(run, Kind.ENDED, body, **changes))


def test_pinned_run_is_given_to_workers_of_its_version_alone(team: dict[str, Store]) -> None:
    created(team["v2"])
    created(team["v2"], "any")
    pinned = team["v2"].pin_run("run-1", "v1", by="ada")
    assert pinned.version == "v1"
    assert sorted(given(team["v1"])) == ["any", "run-1"]
    assert given(team["v2"]) == given(team[""]) == ["any"]
    assert not [item for item in team[""].check() if isinstance(item, Finding)]


@pytest.mark.parametrize("version", ["v2", ""])
def test_process_of_another_version_is_refused_unless_a_person_names_the_run(
    team: dict[str, Store], version: str
) -> None:
    created(team["v1"])
    team["v1"].pin_run("run-1", "v1", by="ada")
    with pytest.raises(RunPinned, match="is pinned to version v1"):
        claimed(team[version])
    assert claimed(team[version], terms=PARDON).state == RunState.RUNNING


def test_delivery_says_which_version_has_the_run(team: dict[str, Store]) -> None:
    created(team["v1"])
    claimed(team["v1"])
    delivery: Delivery = read_body(team["v1"].load_journal("run-1")[-1])
    assert delivery.version == "v1"


def test_run_that_no_longer_matched_its_code_is_queued_for_the_version_that_knows_it(team: dict[str, Store]) -> None:
    diverged(team["v2"])
    assert given(team["v1"]) == []
    after = team[""].pin_run("run-1", "v1", by="ada")
    assert (after.state, after.reason, read_park(after).code) == (RunState.QUEUED, "", "")
    assert given(team["v2"]) == []
    assert given(team["v1"]) == ["run-1"]
    ended: Ended = read_body(team["v1"].load_journal("run-1")[-1])
    assert ended.message == "pinned to version v1 by ada"
    assert claimed(team["v1"]).steps == 1


def test_asked_twice_it_is_pinned_once(team: dict[str, Store]) -> None:
    diverged(team["v2"])
    first = team["v1"].pin_run("run-1", "v1", by="ada")
    assert team["v2"].pin_run("run-1", "v1", by="bob") == first


def test_unpinned_run_is_anybodys_and_one_that_diverged_stays_parked(team: dict[str, Store]) -> None:
    created(team["v1"])
    team["v1"].pin_run("run-1", "v1", by="ada")
    assert team["v1"].pin_run("run-1", "", by="ada").version == ""
    assert given(team["v2"]) == ["run-1"]
    diverged(team["v2"], "run-2")
    assert team["v2"].pin_run("run-2", "", by="ada").state == RunState.WAITING


def test_waiting_run_keeps_what_it_waits_for_and_wakes_for_its_version(team: dict[str, Store]) -> None:
    run = held_run(team["v1"])
    changes: dict[str, Any] = {"state": RunState.WAITING, "reason": WaitReason.HUMAN, "holder": ""}
    body = Ended(state=RunState.WAITING, reason=WaitReason.HUMAN)
    waiting = land(team["v1"], append(run, Kind.ENDED, body, **changes))
    pinned = team["v2"].pin_run("run-1", "v1", by="ada")
    assert (pinned.state, pinned.reason, pinned.length) == (waiting.state, waiting.reason, waiting.length)
    team["v2"].post(letter())
    assert given(team["v2"]) == []
    assert given(team["v1"]) == ["run-1"]


@asks_who_lives
def test_live_holder_is_not_robbed_by_a_pin(team: dict[str, Store]) -> None:
    run = held_run(team["v2"])
    with pytest.raises(RunHeld):
        team["v1"].pin_run("run-1", "v1", by="ada")
    land(team["v2"], step(run))


@asks_who_lives
def test_dead_holder_writes_no_more_once_its_run_is_pinned(place: Place, team: dict[str, Store]) -> None:
    other = place.open()
    run = held_run(other)
    other.close()
    team["v1"].pin_run("run-1", "v1", by="ada")
    assert isinstance(outcome_of(team["v1"], step(run)), LeaseLost)
    assert given(team["v2"]) == []
    assert given(team["v1"]) == ["run-1"]


def test_what_has_ended_moved_or_was_never_there_is_not_pinned(team: dict[str, Store]) -> None:
    store = team["v1"]
    land(store, ending(held_run(store, "done")))
    with pytest.raises(UsageError, match="no worker takes it any more"):
        store.pin_run("done", "v1", by="ada")
    with pytest.raises(UnknownRun):
        store.pin_run("nowhere", "v1", by="ada")
    created(store, "gone")
    list(Mover(store, MemoryPlace().open(), names=("here", "there")).move())
    with pytest.raises(RunMoved):
        store.pin_run("gone", "v1", by="ada")
