"""Bringing the schema of a PostgreSQL store up to date; any number of processes may try at once.

All that versions add is one transaction with their number: whoever is killed in the middle leaves what was there.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors as server

from perdure.errors import SchemaTooNew, StoreUnavailable
from perdure.store.postgres.connect import Connection, Line
from perdure.store.postgres.location import read_location
from perdure.store.sql import load_schema

if TYPE_CHECKING:
    from perdure.store.postgres.location import Location

_ATTEMPTS: Final = 20
_RACES: Final = (
    server.UniqueViolation,
    server.DuplicateTable,
    server.DuplicateSchema,
    server.DuplicateObject,
    server.InternalError_,
)
"""How the catalogue refuses one of two that make the same thing in the same moment."""

_LONG_SECONDS: Final = 3600.0
"""How long a single change of a large table may take."""


def migrate(line: Line) -> bool:
    """Make or update our tables, each step whole or not at all; whether they were made from nothing."""
    if _version(line) == len(load_schema("postgres")):
        return False
    for attempt in range(_ATTEMPTS):
        try:
            return line.again(lambda connection: _migrated(connection, line.location))
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, _RACES) or attempt == _ATTEMPTS - 1:
                raise
    return False


def read_version(url: str, *, seconds: float) -> int:
    """The schema version of the store that a URL names; 0 where there is none."""
    with contextlib.closing(Line(read_location(url), seconds=seconds)) as line:
        return _version(line)


def check_schema(line: Line) -> None:
    """Refuse a store that is not there, or that only a newer perdure can read."""
    version = _version(line)
    location = line.location
    if not version:
        raise StoreUnavailable(
            f"There is no store in {location.shown} (schema {location.schema}).",
            safe="nothing was changed.",
            hint="perdure migrate makes the tables; so does the first run or worker",
        )
    refuse_newer(version, location)
    if version < len(load_schema("postgres")):
        raise StoreUnavailable(
            f"The store in {location.shown} is of an older perdure (schema version {version}).",
            safe="nothing was changed.",
            hint="perdure migrate brings the tables up to date; so does the next run or worker",
        )


def refuse_newer(version: int, location: Location) -> None:
    """An older perdure writes nothing into a newer schema."""
    known = len(load_schema("postgres"))
    if version > known:
        raise SchemaTooNew(
            f"The store in {location.shown} has schema version {version}; this perdure knows {known}.",
            safe="nothing was changed.",
            hint="pip install --upgrade perdure",
        )


def _version(line: Line) -> int:
    """The version that is there; 0 where there is none."""
    found = line.again(
        lambda connection: connection.execute(
            "SELECT to_regclass(%s) IS NOT NULL", (f"{line.location.schema}.meta",)
        ).fetchone()
    )
    if not found or not found[0]:
        return 0
    rows = line.again(lambda connection: connection.execute("SELECT version FROM meta").fetchall())
    return int(rows[0][0]) if rows else 0


def _migrated(connection: psycopg.Connection[Any], location: Location) -> bool:
    schema = load_schema("postgres")
    if isinstance(connection, Connection):
        connection.answer_seconds = _LONG_SECONDS
    with connection.transaction():
        if not _is_there(connection, location.schema):  # to make one that is there needs rights that are not needed
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {location.schema}")  # the name was checked
        connection.execute("CREATE TABLE IF NOT EXISTS meta (one BIGINT PRIMARY KEY, version BIGINT NOT NULL)")
        connection.execute("INSERT INTO meta (one, version) VALUES (1, 0) ON CONFLICT DO NOTHING")
        found = connection.execute("SELECT version FROM meta WHERE one = 1 FOR UPDATE").fetchone()
        version = int(found[0]) if found else 0
        refuse_newer(version, location)
        for statements in schema[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute("UPDATE meta SET version = %s WHERE one = 1", (len(schema),))
    return version == 0


def _is_there(connection: psycopg.Connection[Any], schema: str) -> bool:
    found = connection.execute("SELECT count(*) FROM information_schema.schemata WHERE schema_name = %s", (schema,))
    row = found.fetchone()
    return bool(row and row[0])
