"""Schedules and workers: each tick is one run, whoever sees it and whoever dies; what was missed is made up for.

Time is not waited for: a tick is due because the row in the store says that the next one lies in the past.
"""

from __future__ import annotations

import collections
import contextlib
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from perdure import clock
from perdure.cron import next_after, parse
from perdure.records import Schedule, is_whole_row, sealed_schedule, tick_id
from perdure.store import open_store
from perdure.store.protocol import Store, Which
from tests.worker.conftest import PATIENCE, Crew, on_a_server_too

YEARLY = "0 3 1 1 *"
MONTHLY = "0 3 1 * *"
APP = """
    from datetime import datetime

    def log(line):
        with open("log.txt", "a") as file:
            file.write(line + "\\n")

    @perdure.agent(schedule=perdure.Schedule({cron!r}, catch_up={catch_up!r}, arguments={{"region": "eu"}}))
    def digest(region: str, tick: datetime) -> str:
        log(f"{{region}} {{tick.isoformat()}}")
        return region
"""
KILLED_ONCE = """
    from perdure import events

    @events.subscribe
    def die(event):
        if isinstance(event, events.TickStarted) and not os.path.exists("died"):
            pathlib.Path("died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


class Office:
    """A crew whose agent has a schedule, and the row of it."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        crew.place.environment["PYTHONDONTWRITEBYTECODE"] = "1"  # code is written anew within a second
        self.location = crew.place.environment.get("PERDURE_STORE", str(crew.place.database))

    def write(self, name: str, *, cron: str = YEARLY, catch_up: str = "last", more: str = "") -> None:
        self.crew.place.write(name, APP.format(cron=cron, catch_up=catch_up) + more)

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        opened = open_store(self.location)
        try:
            yield opened
        finally:
            opened.close()

    def put(self, *, cron: str = YEARLY, catch_up: str = "last", **fields: Any) -> Schedule:
        """Keep the row that this code would declare, but with other times."""
        row = Schedule("app.digest", "app.digest", cron, "UTC", catch_up, '{"region":"eu"}', next_at=0.0)
        with self.store() as store:
            kept = next((each for each in store.list_schedules() if each.name == row.name), None)
            after = sealed_schedule(msgspec.structs.replace(row, **fields))
            assert store.change_schedule(kept, after)
        return after

    def put_other(self, *, next_at: float) -> None:
        """Keep a second schedule, at which a worker looks after the first: once it has a run, both were seen to."""
        row = Schedule("app.digest:z", "app.digest", YEARLY, "UTC", "last", '{"region":"eu"}', next_at=next_at)
        with self.store() as store:
            assert store.change_schedule(None, sealed_schedule(row))

    def row(self) -> Schedule:
        with self.store() as store:
            (row,) = [each for each in store.list_schedules() if each.name == "app.digest"]
        assert is_whole_row(row)
        return row

    def run_ids(self) -> list[str]:
        with self.store() as store:
            return sorted(run.run_id for run in store.find_runs(Which()))

    def told(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.crew.told if each["event"] == event]


@pytest.fixture
def office(crew: Crew) -> Office:
    made = Office(crew)
    made.write("app.py")
    return made


def ago(cron: str, number: int) -> list[float]:
    """The newest ticks, so many, oldest first."""
    span = 400.0 if cron == YEARLY else 40.0
    instant, found = clock.wall_seconds() - number * span * 86400, []
    while (instant := next_after(parse(cron), UTC, instant)) <= clock.wall_seconds():
        found.append(instant)
    return found[-number:]


def written(tick_at: float) -> str:
    return f"eu {datetime.fromtimestamp(tick_at, UTC).isoformat()}"


@on_a_server_too
def test_tick_is_one_run_however_many_workers_see_it_and_it_knows_its_tick(office: Office) -> None:
    (tick,) = ago(YEARLY, 1)
    before = office.put(next_at=tick)
    for _ in range(3):
        office.crew.worker("--in-process")
    office.crew.until(lambda: len(office.told("worker_started")) == 3 and len(office.crew.ended()) == 1)
    office.crew.until(lambda: office.row().next_at > clock.wall_seconds())
    assert office.run_ids() == [tick_id("app.digest", tick)]
    assert office.crew.log() == [written(tick)]
    assert len(office.told("tick_started")) == 1
    after = office.row()
    assert (after.last_at, after.last_run) == (tick, tick_id("app.digest", tick))
    assert after.next_at == next_after(parse(YEARLY), UTC, before.next_at)


@on_a_server_too
def test_worker_killed_between_starting_the_run_and_moving_on_loses_and_doubles_nothing(office: Office) -> None:
    office.write("app.py", more=KILLED_ONCE)
    (tick,) = ago(YEARLY, 1)
    office.put(next_at=tick)
    first = office.crew.worker("--in-process")
    assert first.wait(PATIENCE) == -signal.SIGKILL
    assert office.run_ids() == [tick_id("app.digest", tick)]
    assert office.row().next_at == tick, "it was killed too late to tell anything"
    office.crew.worker("--in-process")
    office.crew.until(lambda: len(office.crew.ended()) == 1 and office.row().next_at > clock.wall_seconds())
    assert office.run_ids() == [tick_id("app.digest", tick)]
    assert office.crew.log() == [written(tick)]


@pytest.mark.parametrize("catch_up", ["last", "all", "none"])
def test_ticks_of_an_outage_are_made_up_for_as_the_schedule_says(office: Office, catch_up: str) -> None:
    office.write("app.py", cron=MONTHLY, catch_up=catch_up)
    missed = ago(MONTHLY, 5)
    office.put(cron=MONTHLY, catch_up=catch_up, next_at=missed[0])
    expected = {"last": missed[-1:], "all": missed, "none": []}[catch_up]
    office.crew.worker("--in-process")
    office.crew.worker("--in-process")
    office.crew.until(lambda: office.row().next_at > clock.wall_seconds())
    office.crew.until(lambda: len(office.crew.ended()) == len(expected))
    assert office.run_ids() == [tick_id("app.digest", tick) for tick in expected]
    assert sorted(office.crew.log()) == [written(tick) for tick in expected]
    skipped = [] if catch_up == "all" else [missed[0]]
    office.crew.until(lambda: len(office.told("ticks_skipped")) >= len(skipped))
    assert [each["since_at"] for each in office.told("ticks_skipped")] == skipped


def test_changed_expression_takes_effect_and_old_workers_go_by_it(office: Office) -> None:
    office.crew.worker("--in-process")
    office.crew.until(lambda: len(office.told("schedule_declared")) == 1)
    office.write("app.py", cron=MONTHLY)
    new = office.crew.worker("--in-process")
    office.crew.until(lambda: len(office.told("schedule_declared")) == 2)
    assert office.row().next_at == next_after(parse(MONTHLY), UTC, clock.wall_seconds())
    office.crew.kill(new)
    missed = ago(MONTHLY, 2)
    office.put(cron=MONTHLY, next_at=missed[0])
    office.crew.until(lambda: len(office.crew.ended()) == 1)
    office.crew.until(lambda: office.row().next_at > clock.wall_seconds())
    assert office.run_ids() == [tick_id("app.digest", missed[-1])]
    assert office.row().cron == MONTHLY
    assert [each["cron"] for each in office.told("schedule_declared")] == [YEARLY, MONTHLY]


def test_tick_that_was_due_before_the_expression_changed_is_not_lost(office: Office) -> None:
    (tick,) = ago(YEARLY, 1)
    office.put(next_at=tick)
    office.write("app.py", cron=MONTHLY)
    office.crew.worker("--in-process")
    office.crew.until(lambda: len(office.crew.ended()) == 1 and office.row().cron == MONTHLY)
    assert office.run_ids() == [tick_id("app.digest", tick)]


def test_schedule_that_the_code_has_no_more_has_no_ticks(office: Office) -> None:
    office.put(next_at=clock.wall_seconds() + 86400)
    office.crew.place.write("app.py", "@perdure.agent\ndef digest(region: str, tick: str) -> str:\n    return region\n")
    office.crew.worker("--in-process")
    office.crew.until(lambda: office.told("schedule_withdrawn"))
    with office.store() as store:
        assert store.list_schedules() == []


def test_schedule_that_is_switched_off_starts_nothing_until_it_is_switched_on(office: Office) -> None:
    (tick,) = ago(YEARLY, 1)
    office.put(next_at=clock.wall_seconds() + 86400)
    assert office.crew.place.perdure("schedules", "--off", "digest").code == 0
    office.put(next_at=tick, off_at=office.row().off_at)
    office.put_other(next_at=tick)
    office.crew.worker("--in-process")
    office.crew.until(lambda: len(office.crew.ended()) == 1)
    assert office.row().next_at == tick
    assert office.crew.place.perdure("schedules", "--on", "digest").code == 0
    assert office.row().next_at > clock.wall_seconds()
    assert office.run_ids() == [tick_id("app.digest:z", tick)]


@on_a_server_too
def test_clock_of_a_machine_that_is_an_hour_ahead_starts_nothing_early_on_a_server(office: Office) -> None:
    if not office.location.startswith("postgres"):
        pytest.skip("one machine has one clock")
    ahead = "    perdure_clock = __import__('perdure.clock').clock\n    real = time.time\n"
    skewed = ahead + "    perdure_clock.wall_seconds = lambda: real() + 3600\n"
    office.write("app.py", more=skewed)
    office.put(next_at=clock.wall_seconds() + 1800)
    (tick,) = ago(YEARLY, 1)
    later = Schedule("app.digest:z", "app.digest", YEARLY, "UTC", "last", '{"region":"eu"}', next_at=tick)
    with office.store() as store:
        assert store.change_schedule(None, sealed_schedule(later))
    office.crew.worker("--in-process")
    office.crew.until(
        lambda: len(office.crew.ended()) == 1
    )  # what is looked at last was started, so all were looked at
    assert office.run_ids() == [tick_id("app.digest:z", tick)]


@on_a_server_too
def test_many_workers_that_are_killed_start_every_tick_once(office: Office) -> None:
    """Workers see the ticks of an outage, each dies somewhere in between, and the next one goes on."""
    office.write("app.py", cron=MONTHLY, catch_up="all", more=KILLED_EACH)
    missed = ago(MONTHLY, 6)
    office.put(cron=MONTHLY, catch_up="all", next_at=missed[0])
    deaths = 0
    for _ in range(8):
        process = office.crew.worker("--in-process")
        office.crew.until(lambda process=process: process.poll() is not None or len(office.crew.log()) == len(missed))
        deaths += process.poll() == -signal.SIGKILL
    assert deaths >= 5
    office.crew.until(lambda: len(office.crew.log()) == len(missed))
    assert office.run_ids() == [tick_id("app.digest", tick) for tick in missed]
    assert max(collections.Counter(office.crew.log()).values()) == 1


KILLED_EACH = """
    from perdure import events

    @events.subscribe
    def die(event):
        if isinstance(event, events.TickStarted):
            os.kill(os.getpid(), signal.SIGKILL)
"""
