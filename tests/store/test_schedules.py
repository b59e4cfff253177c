"""Schedules in every store: kept as they are put there, changed by one of however many, and damage is named."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

from perdure.records import Schedule, is_own_id, is_tick_id, is_whole_row, sealed_schedule, tick_id
from perdure.store.protocol import Finding, Old
from tests.store.journals import ending, held_run, land

if TYPE_CHECKING:
    from perdure.store.protocol import Store
    from tests.store.places import Place


def schedule(name: str = "shop.digest", **fields: object) -> Schedule:
    bare = Schedule(name, "shop.digest", "0 9 * * *", "UTC", "last", "{}", 1_000_000.0)
    return sealed_schedule(msgspec.structs.replace(bare, **fields))


def test_schedules_are_kept_by_name_for_everybody(store: Store, other: Store) -> None:
    late, early = schedule("z"), schedule("a", off_at=5.5, last_at=7.0, last_run="a@2026-01-01T00:00Z")
    assert store.change_schedule(None, late)
    assert store.change_schedule(None, early)
    assert other.list_schedules() == [early, late]
    assert all(is_whole_row(each) for each in other.list_schedules())


def test_schedule_is_only_changed_by_who_knows_what_is_kept(store: Store, other: Store) -> None:
    first = schedule()
    second, third = schedule(next_at=2.0), schedule(next_at=3.0)
    assert not store.change_schedule(first, second)
    assert not store.change_schedule(first, None)
    assert store.change_schedule(None, first)
    assert not other.change_schedule(None, second)
    assert other.change_schedule(first, second)
    assert not store.change_schedule(first, third)
    assert store.list_schedules() == [second]
    assert not store.change_schedule(first, None)
    assert store.change_schedule(second, None)
    assert other.list_schedules() == []


def test_of_many_who_change_the_same_one_does_it(place: Place) -> None:
    stores = [place.open() for _ in range(6)]
    first = schedule()
    assert stores[0].change_schedule(None, first)
    outcomes: list[bool] = []
    ready = threading.Barrier(len(stores))

    def advance(number: int) -> None:
        ready.wait()
        outcomes.append(stores[number].change_schedule(first, schedule(next_at=10.0 + number)))

    threads = [threading.Thread(target=advance, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * (len(stores) - 1) + [True]


def test_damaged_schedule_is_named(store: Store, place: Place) -> None:
    kept = schedule()
    store.change_schedule(None, kept)
    place.damage_schedule("shop.digest", cron="* * * * *")
    (found,) = store.list_schedules()
    assert not is_whole_row(found)
    assert [each for each in store.check() if isinstance(each, Finding)] == [
        Finding(where="schedule shop.digest", what="is damaged (its digest does not match)")
    ]
    assert store.change_schedule(found, kept)
    assert store.list_schedules() == [kept]


def test_time_of_the_store_goes_on(store: Store, other: Store) -> None:
    first = store.now()
    assert first <= other.now()
    assert first > 1_700_000_000


def test_runs_of_ticks_do_not_stay_for_ever(store: Store) -> None:
    run_id = tick_id("shop.digest", 1_800_000_000.0)
    for each in (run_id, "mine"):
        land(store, ending(held_run(store, each)))
    would = store.find_prunable(Old(ended_before=10**12, named=False))
    assert ([run.run_id for run in would.runs], would.named) == ([run_id], 1)


@pytest.mark.parametrize("name", ["shop.digest", "shop.digest:morning", "a@b"])
def test_id_of_a_tick_is_always_the_same_and_nobody_chose_it(name: str) -> None:
    run_id = tick_id(name, 1_800_000_000.0)
    assert run_id == f"{name}@2027-01-15T08:00Z"
    assert is_tick_id(run_id)
    assert not is_own_id(run_id)
    assert not is_own_id(f"{run_id}~2")
    assert not is_tick_id("mine@2027-01-15")
    assert is_own_id("mine@2027-01-15")
