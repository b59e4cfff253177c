"""Limits and schedules: the newest declaration counts, and a worker that only was replaced has nothing new to say."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.records import Queue, sealed_schedule
from perdure.store import open_store
from tests.faces.conftest import Place
from tests.worker.conftest import Crew

CODE = """
    box = perdure.Queue("box", concurrency={concurrency})

    @perdure.agent(schedule=perdure.Schedule("{cron}"))
    def nightly() -> None:
        pass
"""


class Office:
    """A worker's code, and what the store keeps of its limits and its schedule."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder)
        self.place.environment["PYTHONDONTWRITEBYTECODE"] = "1"  # code is written anew within a second
        self.crew = Crew(self.place)
        self.write(concurrency=1, cron="0 1 * * *")

    def write(self, *, concurrency: int, cron: str) -> None:
        self.place.write("app.py", CODE.format(concurrency=concurrency, cron=cron))

    def declare(self, *, concurrency: int, cron: str) -> None:
        """As a worker with newer code would."""
        with closing(open_store(str(self.place.database))) as store:
            store.declare_queue(Queue("box", concurrency=concurrency))
            (row,) = store.list_schedules()
            assert store.change_schedule(row, sealed_schedule(msgspec.structs.replace(row, cron=cron)))

    def kept(self) -> tuple[int, str]:
        with closing(open_store(str(self.place.database))) as store:
            limits = {queue.name: queue for queue in store.list_queues()}
            (row,) = store.list_schedules()
            return limits["box"].concurrency, row.cron

    def replace(self, worker: Any) -> None:
        """Kill the process that works; its parent starts another, which has looked for work when this returns."""
        before = len(self.told("worker_started"))
        os.kill(self.crew.hands(worker), signal.SIGKILL)
        self.crew.until(lambda: len(self.told("worker_started")) > before)
        self.work()

    def work(self) -> None:
        run = self.crew.start("nightly")
        self.crew.until(lambda: run in self.crew.ended())

    def told(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.crew.told if each["event"] == event]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path)
    yield made
    made.crew.end()


def test_worker_that_replaces_a_dead_one_leaves_what_was_declared_since(office: Office) -> None:
    worker = office.crew.worker()
    office.crew.until(lambda: office.told("schedule_declared"))
    office.work()
    assert office.kept() == (1, "0 1 * * *")
    office.declare(concurrency=7, cron="0 7 * * *")
    for _ in range(2):
        office.replace(worker)
        assert office.kept() == (7, "0 7 * * *")


def test_worker_that_replaces_a_dead_one_with_other_code_declares_that(office: Office) -> None:
    worker = office.crew.worker()
    office.crew.until(lambda: office.told("schedule_declared"))
    office.work()
    office.declare(concurrency=7, cron="0 7 * * *")
    office.write(concurrency=2, cron="0 2 * * *")
    office.replace(worker)
    assert office.kept() == (2, "0 2 * * *")


def test_worker_that_is_started_anew_declares_what_its_code_says(office: Office) -> None:
    office.crew.worker()
    office.crew.until(lambda: office.told("schedule_declared"))
    office.work()
    office.declare(concurrency=7, cron="0 7 * * *")
    office.crew.worker()
    office.crew.until(lambda: len(office.told("schedule_declared")) == 2)
    office.crew.until(lambda: office.kept() == (1, "0 1 * * *"))
