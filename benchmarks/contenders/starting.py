"""Empty runs through a queue: one process enqueues them, another, which was idle, executes them.

Each contender's worker is a process of its own, with ten at a time where it has a limit by default; the clock runs from
the first that is enqueued to the last that has completed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

CONCURRENCY = 10
WARM_UP_RUNS = 20
PATIENCE_SECONDS = 60.0
TRIAL = (sys.executable, "-m", "benchmarks.trial")
ERRANDS = "benchmarks.postgres.errands"
PERDURE_DONE = "SELECT count(*) FROM perdure.runs WHERE state = 'completed'"
ABSURD_DONE = "SELECT count(*) FROM absurd.t_default WHERE state = 'completed'"
DBOS_DONE = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"


def perdure(*, directory: Path, url: str, runs: int) -> dict[str, float]:
    """perdure: `perdure.start(queue=…)` and `perdure worker`."""
    import perdure as ours
    from benchmarks.postgres.errands import nothing

    ours.configure(store=url, quiet=True)
    worker = (sys.executable, "-m", "perdure", "worker", ERRANDS, "--concurrency", str(CONCURRENCY))
    ours.start(nothing, -1, queue="default")
    with working(worker, directory, PERDURE_STORE=url):
        return timed(lambda number: ours.start(nothing, number, queue="default"), url, PERDURE_DONE, runs)


def absurd(*, directory: Path, url: str, runs: int) -> dict[str, float]:
    """Absurd: `spawn` and `start_worker`."""
    from benchmarks.contenders.absurd import QUEUE, Absurd, install

    install(directory, url)
    app = Absurd(url, queue_name=QUEUE)
    with working((*TRIAL, "starting.absurd_worker", f'{{"directory": "{directory}", "url": "{url}"}}'), directory):
        return timed(lambda number: app.spawn("nothing", {"number": number}, queue=QUEUE), url, ABSURD_DONE, runs)


def absurd_worker(*, directory: Path, url: str) -> dict[str, float]:
    """Execute tasks until killed."""
    from benchmarks.contenders.absurd import QUEUE, Absurd

    assert directory.is_dir()
    app = Absurd(url, queue_name=QUEUE)
    app.register_task("nothing")(lambda _given, _context: None)
    app.start_worker(concurrency=CONCURRENCY)
    return {}


def dbos(*, directory: Path, url: str, runs: int) -> dict[str, float]:
    """DBOS: a client that enqueues, and a process that listens to the queue."""
    from dbos import DBOSClient

    with working((*TRIAL, "starting.dbos_worker", f'{{"directory": "{directory}", "url": "{url}"}}'), directory):
        wait_until((directory / "ready").exists)
        client = DBOSClient(system_database_url=url)
        options = {"queue_name": "starts", "workflow_name": "nothing", "app_version": "1"}
        return timed(lambda number: client.enqueue(options, number), url, DBOS_DONE, runs)


def dbos_worker(*, directory: Path, url: str) -> dict[str, float]:
    """Execute workflows until killed."""
    from dbos import DBOS

    from benchmarks.contenders.dbos_postgres import launch

    DBOS.workflow(name="nothing")(lambda _number: None)
    launch(directory, url)
    DBOS.register_queue("starts")  # without a limit: with one of ten it takes ten a second, however short they are
    (directory / "ready").touch()
    time.sleep(PATIENCE_SECONDS)
    return {}


def timed(enqueue: Callable[[int], object], url: str, done: str, runs: int) -> dict[str, float]:
    """Warm up, then time so many runs, and how long handing them in took."""
    with psycopg.connect(url, autocommit=True) as connection:

        def completed() -> int:
            with contextlib.suppress(psycopg.errors.UndefinedTable):
                ((count,),) = connection.execute(done).fetchall()
                return int(count)
            return 0

        for number in range(WARM_UP_RUNS):
            enqueue(number)
        wait_until(lambda: completed() >= WARM_UP_RUNS)
        before = completed()
        started = time.perf_counter()
        for number in range(WARM_UP_RUNS, WARM_UP_RUNS + runs):
            enqueue(number)
        enqueued = time.perf_counter() - started
        wait_until(lambda: completed() >= before + runs)
        seconds = time.perf_counter() - started
    return {"per_second": runs / seconds, "enqueued_per_second": runs / enqueued}


@contextmanager
def working(command: tuple[str, ...], directory: Path, **variables: str) -> Iterator[None]:
    """Have a worker at work, with everything that belongs to it gone afterwards."""
    with (directory / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            command, cwd=directory, env={**os.environ, **variables}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Look again and again."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < until, "the worker did not do its work"
        time.sleep(0.02)
