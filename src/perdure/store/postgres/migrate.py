"""Bringing the schema of a PostgreSQL store up to date; any number of processes may try at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors as server

from perdure.errors import SchemaTooNew, StoreUnavailable
from perdure.store.sql import load_schema

if TYPE_CHECKING:
    from perdure.store.postgres.connect import Line
    from perdure.store.postgres.location import Location

_ATTEMPTS = 20


def migrate(line: Line) -> bool:
    """Make or update our tables, each step whole or not at all; whether they were made from nothing."""
    if _version(line) == len(load_schema("perdure.store.postgres")):
        return False
    for attempt in range(_ATTEMPTS):
        try:
            return line.again(lambda connection: _migrated(connection, line.location))
        except StoreUnavailable as error:
            # Two that make the same schema in the same moment: one is refused by the catalogue, and looks again.
            is_race = isinstance(error.__cause__, (server.UniqueViolation, server.DuplicateTable))
            if not is_race or attempt == _ATTEMPTS - 1:
                raise
    return False


def check_schema(line: Line) -> None:
    """Refuse a store that is not there, or that only a newer perdure can read."""
    version = _version(line)
    location = line.location
    if not version:
        raise StoreUnavailable(
            f"There is no store in {location.shown} (schema {location.schema}).",
            safe="nothing was changed.",
            hint="start a run or a worker: it makes the tables",
        )
    refuse_newer(version, location)
    if version < len(load_schema("perdure.store.postgres")):
        raise StoreUnavailable(
            f"The store in {location.shown} is of an older perdure (schema version {version}).",
            safe="nothing was changed.",
            hint="start a run or a worker: it brings the tables up to date",
        )


def refuse_newer(version: int, location: Location) -> None:
    """An older perdure writes nothing into a newer schema."""
    known = len(load_schema("perdure.store.postgres"))
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
    schema = load_schema("perdure.store.postgres")
    with connection.transaction():
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
