"""Looking at a PostgreSQL store from outside: the server, what it keeps, what the role may do; nothing is changed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import psycopg

from perdure.errors import PerdureError, StoreUnavailable
from perdure.store.health import Sign
from perdure.store.postgres.connect import Line
from perdure.store.postgres.location import Location, read_location
from perdure.store.postgres.migrate import read_version, refuse_newer
from perdure.store.postgres.refusal import plain, quoted, rights
from perdure.store.sql import load_schema
from perdure.telemetry.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

FEW_CONNECTIONS: Final = 10
_NEEDED: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")


class Examined:
    """What a look found, and whether the store can be read any further."""

    def __init__(self, url: str, *, seconds: float) -> None:
        self.signs: list[Sign] = []
        self.is_readable = False
        self.location = ""
        try:
            where = read_location(url)
            self.location = where.shown
            with contextlib.closing(Line(where, seconds=seconds)) as line:
                self.signs += line.again(lambda connection: list(_server_signs(connection, where)))
            self._look_inside(url, where, seconds=seconds)
        except PerdureError as error:
            self.signs.append(Sign("store", "problem", error.message, error.hint))

    def _look_inside(self, url: str, where: Location, *, seconds: float) -> None:
        version, known = read_version(url, seconds=seconds), len(load_schema("postgres"))
        with contextlib.closing(Line(where, seconds=seconds)) as line:
            if not version:
                self.signs += line.again(lambda connection: list(_making_signs(connection, where)))
                return
            refuse_newer(version, where)
            if version < known:
                self.signs += line.again(lambda connection: list(_updating_signs(connection, where, version, known)))
                return
            self.signs.append(Sign("schema", "ok", f"version {version}"))
            self.is_readable = True
            if not where.portable:
                self.signs += line.again(lambda connection: list(_right_signs(connection, where)))


def _server_signs(connection: psycopg.Connection[Any], where: Location) -> Iterator[Sign]:
    """The server itself: which one, whether it keeps what it acknowledges, and whether it can be written."""
    number = connection.info.server_version
    yield Sign("server", "ok", f"{where.shown} can be reached: PostgreSQL {number // 10000}.{number % 10000}")
    fsync, commit, pages, read_only = _settings(connection)
    if fsync == "off":
        what = "fsync is off: a power loss may cost what was acknowledged, or all of it"
        yield Sign("durability", "problem", what, "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()")
    elif pages == "off":
        what = "full_page_writes is off: a power loss may damage pages"
        yield Sign("durability", "warning", what, "ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()")
    else:
        yield Sign("durability", "ok", f"fsync on; commits are synced (the server's own default: {commit or 'on'})")
    if read_only == "on":
        what = f"{where.shown} only lets itself be read"
        yield Sign("writing", "problem", what, "name the primary server, not a replica")
    if not where.portable:
        yield from _connection_signs(connection)


def _settings(connection: psycopg.Connection[Any]) -> tuple[str, ...]:
    names = ("fsync", "synchronous_commit", "full_page_writes", "transaction_read_only")
    rows = connection.execute(f"SELECT {', '.join(f'current_setting({name!r}, true)' for name in names)}").fetchall()
    return tuple(value or "" for value in rows[0])


def _connection_signs(connection: psycopg.Connection[Any]) -> Iterator[Sign]:
    """How many more processes may come."""
    ((most, used),) = connection.execute(
        "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,"
        " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"
    ).fetchall()
    left = max(0, most - used)
    words = f"{counted(left, 'connection')} of {most} free"
    if left < FEW_CONNECTIONS:
        yield Sign("connections", "warning", words, "raise max_connections, or start fewer processes")
    else:
        yield Sign("connections", "ok", words)


def _making_signs(connection: psycopg.Connection[Any], where: Location) -> Iterator[Sign]:
    """There are no tables yet: whether this role can make them."""
    schema, role = quoted(where.schema), quoted(connection.info.user)
    lacks, on = _lacked_to_make(connection, where)
    if not lacks:
        words = f"there is none yet in schema {where.schema}; the first run makes it, and perdure migrate does"
        yield Sign("store", "ok", words)
        return
    what = f"there is none yet, and role {connection.info.user} cannot make it: it lacks {' and '.join(lacks)} on {on}"
    own = f"GRANT {', '.join(lacks)} ON {on} TO {role}"
    other = (
        f"let who may do that say perdure migrate and GRANT USAGE ON SCHEMA {schema} TO {role}; {rights(schema, role)}"
    )
    yield Sign("store", "problem", what, f"{own}; or {other}")


def _lacked_to_make(connection: psycopg.Connection[Any], where: Location) -> tuple[list[str], str]:
    """Which rights to make the tables this role lacks, and on what."""
    if where.portable:
        return [], ""
    is_there = connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", (where.schema,)).fetchall()
    if not is_there[0][0]:
        ((name, may),) = connection.execute(
            "SELECT current_database(), has_database_privilege(current_database(), 'CREATE')"
        ).fetchall()
        return [] if may else ["CREATE"], f"DATABASE {quoted(name)}"
    names = ("USAGE", "CREATE")
    ((*may,),) = connection.execute(
        "SELECT has_schema_privilege(%(schema)s, 'USAGE'), has_schema_privilege(%(schema)s, 'CREATE')",
        {"schema": where.schema},
    ).fetchall()
    return [name for name, has in zip(names, may, strict=True) if not has], f"SCHEMA {quoted(where.schema)}"


def _updating_signs(connection: psycopg.Connection[Any], where: Location, version: int, known: int) -> Iterator[Sign]:
    """The tables are those of an older perdure: whether this role can change them."""
    owners = connection.execute(
        "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = %s AND NOT pg_has_role(tableowner, 'USAGE')",
        (where.schema,),
    ).fetchall()
    lacks, on = _lacked_to_make(connection, where)
    role = connection.info.user
    cannot = f"version {version}, and role {role} cannot bring it up to {known}"
    if owners and not where.portable:
        owner = owners[0][0]
        yield Sign("schema", "problem", f"{cannot}: the tables are {owner}'s", f"perdure migrate, as {owner}")
    elif lacks:
        grant = f"GRANT {', '.join(lacks)} ON {on} TO {quoted(role)}"
        yield Sign("schema", "problem", f"{cannot}: it lacks {' and '.join(lacks)} on {on}", grant)
    else:
        words = f"version {version}; the next run or worker brings it up to {known}"
        yield Sign("schema", "warning", words, "perdure migrate")


def _right_signs(connection: psycopg.Connection[Any], where: Location) -> Iterator[Sign]:
    """Whether the role may do what runs need."""
    try:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (where.schema,)).fetchall()
        lacking = [
            f"{right} on {table}"
            for (table,) in tables
            for right in _NEEDED
            if not _may(connection, f"{where.schema}.{table}", right)
        ]
    except psycopg.Error as error:
        raise plain(error, where) from error
    role = connection.info.user
    if lacking:
        what = f"role {role} lacks {', '.join(lacking[:3])}{', …' if len(lacking) > 3 else ''}"  # noqa: PLR2004 - a few
        yield Sign("rights", "problem", what, rights(quoted(where.schema), quoted(role)))
    else:
        yield Sign("rights", "ok", f"role {role} may read and write the {counted(len(tables), 'table')}")


def _may(connection: psycopg.Connection[Any], table: str, right: str) -> bool:
    row = connection.execute("SELECT has_table_privilege(%s, %s)", (table, right)).fetchone()
    if row is None:
        raise StoreUnavailable(f"{table} is gone.", safe="nothing was changed.", hint="perdure migrate")
    return bool(row[0])
