"""How workers died, in every store: kept once, proof of death, told to whoever takes the run, and not for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure.bodies import Delivery, read_body
from perdure.errors import DeliveriesExhausted, LeaseLost
from perdure.records import RunState
from perdure.store.lease import read_park
from perdure.store.protocol import Terms
from tests.store.journals import TERMS, claimed, held_run, outcome_of, step
from tests.store.places import asks_who_lives

if TYPE_CHECKING:
    from perdure.store.protocol import Store
    from tests.store.conftest import ManualClock
    from tests.store.places import Place

pytestmark = asks_who_lives

CAUSE = "killed by signal 9 (out of memory)"


def died(store: Store, worker_id: str) -> tuple[str, bool]:
    worker = store.read_worker(worker_id)
    assert worker is not None
    return worker.death, worker.died_at > 0


def test_death_is_kept_and_everybody_sees_it(store: Store, other: Store) -> None:
    worker_id = store.join().worker_id
    other.join()
    assert died(other, worker_id) == ("", False)
    other.record_death(worker_id, CAUSE)
    assert died(other, worker_id) == (CAUSE, True)
    assert [(each.death, each.died_at > 0) for each in other.list_workers() if each.worker_id == worker_id] == [
        (CAUSE, True)
    ]
    assert [each.death for each in other.list_workers() if each.worker_id != worker_id] == [""]


def test_first_word_on_a_death_counts(store: Store, other: Store) -> None:
    worker_id = store.join().worker_id
    other.record_death(worker_id, CAUSE)
    other.record_death(worker_id, "exited with code 3")
    assert died(other, worker_id) == (CAUSE, True)


def test_worker_that_nobody_knows_leaves_no_death(store: Store) -> None:
    store.record_death("nobody", CAUSE)
    assert store.read_worker("nobody") is None
    assert store.list_workers() == []


def test_recorded_death_is_proof_and_the_run_goes_on_at_once(store: Store, other: Store) -> None:
    run = held_run(store)
    other.join()
    assert other.is_running(run, stall_seconds=TERMS.stall_seconds)
    other.record_death(run.holder, CAUSE)
    assert not other.is_alive(run.holder, stall_seconds=TERMS.stall_seconds)
    taken = claimed(other)
    assert taken.holder == other.join().worker_id
    assert isinstance(outcome_of(store, step(run)), LeaseLost)


def test_next_delivery_says_how_the_holder_died_and_waits_for_nothing(store: Store, other: Store) -> None:
    run = held_run(store)
    other.record_death(run.holder, CAUSE)
    claimed(other)
    body: Delivery = read_body(other.load_journal("run-1")[-1])
    assert body.before.startswith("its process died (pid ")
    assert body.before.endswith(f"): {CAUSE}")
    assert body.unproven_seconds == 0.0


def test_park_of_a_run_that_ends_its_workers_names_the_last_cause(store: Store, other: Store) -> None:
    run = held_run(store)
    other.record_death(run.holder, CAUSE)
    with pytest.raises(DeliveriesExhausted, match=r"the last: killed by signal 9 \(out of memory\)"):
        other.claim_run("run-1", other.join().worker_id, Terms(1, TERMS.stall_seconds))
    parked = other.read_run("run-1")
    assert parked is not None
    assert parked.state == RunState.WAITING
    assert CAUSE in read_park(parked).message


def test_only_the_newest_deaths_are_remembered_and_those_that_runs_name(
    place: Place, store: Store, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("memory.shelf", "sqlite.file", "postgres.presence"):
        monkeypatch.setattr(f"perdure.store.{module}.MOST_DEATHS", 2)
    run = held_run(store)
    store.record_death(run.holder, "the holder's")
    dead = []
    for number in range(5):
        manual_clock.advance(1.0)
        dead.append(place.open().join().worker_id)
        store.record_death(dead[-1], f"death {number}")
    living = place.open().join().worker_id
    known = {each.worker_id: each.death for each in store.list_workers()}
    assert known == {run.holder: "the holder's", dead[3]: "death 3", dead[4]: "death 4", living: ""}
