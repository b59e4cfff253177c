"""`sqlite_upsert` and `postgres_upsert`: a row put in place by its key, and not put there again over a later write.

The same row twice is the same state, but a repeat after a crash may come after somebody else's write. So the row is
read first: it is as wanted (done), it is not there (not done), or it is different, which may be the state before or a
later one. Only a receipt tells these two apart: with `receipts=` the effect's key is put into a table of that name, in
the same transaction as the row.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from perdure.engine.effect import effect
from perdure.engine.settle import Intent, Verdict, cannot_tell, did_not_happen, happened
from perdure.engine.values import current
from perdure.errors import UsageError
from perdure.tools.disk import checked_path

if TYPE_CHECKING:
    import apsw
    import psycopg

Value = str | int | float | bytes | bool | None
Row = dict[str, Value]

BUSY_SECONDS: Final = 30.0
"""How long to wait for another writer of the same database."""

_ATTEMPTS: Final = 3
"""After so many attempts of unknown end a person is asked: the cause does not go away by itself."""

_CONNECT_SECONDS: Final = 10
_SQLITE_INTS: Final = range(-(2**63), 2**63)


class UpsertFailed(Exception):
    """The database refused, and nothing was changed."""


class UpsertUnconfirmed(Exception):
    """The database did not say whether the change is in."""


def sqlite_upsert(
    database: str | os.PathLike[str],
    table: str,
    row: Mapping[str, Value],
    key_columns: Sequence[str],
    *,
    receipts: str | None = None,
) -> Row:
    """Insert a row into a table of an SQLite database, or update the one with the same key; returns its key.

    `row` maps columns to values; `key_columns` are those a unique index or the primary key is on. Columns not named
    keep their values. `receipts` names a table, made if it is missing, in which the effect's key is kept.

    Guaranteed: the row is changed whole, and on the device when this returns. After a crash a row that is as wanted
    counts as done, one that is not there as not done. With `receipts` the change is made exactly once, so a later write
    by somebody else is never overwritten; without, a row that is there and different asks a person.

    Not guaranteed: without `receipts`, a row that somebody deleted after the upsert is put back by the resume.
    """
    place = checked_path(database, tool="sqlite_upsert")
    _check("sqlite_upsert", table, row, key_columns, receipts)
    return _sqlite_upsert(place, table, dict(row), list(key_columns), receipts=receipts)


@effect(
    name="sqlite_upsert",
    in_flight_seconds=0,
    certain=(UpsertFailed, OSError, UsageError),
    ambiguous=(UpsertUnconfirmed,),
)
def _sqlite_upsert(database: str, table: str, row: Row, key_columns: list[str], *, receipts: str | None) -> Row:
    import apsw

    connection = _sqlite(database)
    try:
        connection.execute("BEGIN IMMEDIATE")
        if receipts is None or _is_new_in_sqlite(connection, receipts):
            connection.execute(_statement(table, row, key_columns, mark="?"), tuple(row.values()))
    except apsw.Error as error:
        connection.close()
        raise UpsertFailed(f"{table} in {database}: {error}") from error
    try:
        connection.execute("COMMIT")
    except apsw.Error as error:
        raise UpsertUnconfirmed(f"{table} in {database}: {error}") from error
    finally:
        connection.close()
    return {column: row[column] for column in key_columns}


@_sqlite_upsert.check
def _is_in_sqlite(intent: Intent) -> Verdict:
    arguments = intent.arguments
    connection = _sqlite(arguments["database"])
    try:
        if arguments["receipts"] is not None:
            known = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
            if not connection.execute(known, (arguments["receipts"],)).fetchall():
                return _verdict(intent, found=False, equal=False)
            kept = f"SELECT 1 FROM {_quoted(arguments['receipts'])} WHERE key = ?"  # noqa: S608 - quoted
            return _verdict(intent, found=bool(connection.execute(kept, (intent.key,)).fetchall()), equal=True)
        values, keys = arguments["row"], arguments["key_columns"]
        found = connection.execute(_question(arguments["table"], values, keys, "IS", "?"), _answers(values, keys))
        rows = found.fetchall()
    finally:
        connection.close()
    return _verdict(intent, found=bool(rows), equal=bool(rows and rows[0][0]))


def _is_new_in_sqlite(connection: apsw.Connection, receipts: str) -> bool:
    """Keep the effect's key; False where it was kept before."""
    connection.execute(_receipts_table(receipts))
    connection.execute(
        f"INSERT INTO {_quoted(receipts)} (key) VALUES (?) ON CONFLICT DO NOTHING",  # noqa: S608 - quoted
        (current().key,),
    )
    return connection.changes() == 1


def _sqlite(database: str) -> apsw.Connection:
    import apsw

    try:
        connection = apsw.Connection(database, flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
        connection.execute("PRAGMA synchronous = FULL")
    except apsw.Error as error:
        raise UpsertFailed(f"{database} cannot be opened for writing: {error}") from error
    return connection


def postgres_upsert(
    dsn: str,
    table: str,
    row: Mapping[str, Value],
    key_columns: Sequence[str],
    *,
    receipts: str | None = None,
) -> Row:
    """Insert a row into a Postgres table, or update the one with the same key; returns its key.

    `dsn` is a connection string without a password, or `$NAME` for the one in that environment variable: what is passed
    here is recorded. The rest is as in `sqlite_upsert`; `table` may name its schema: `sales.orders`.

    Guaranteed: as in `sqlite_upsert`. A check counts only once a dead client's transaction can no longer land (10
    seconds after it began).

    Not guaranteed: as in `sqlite_upsert`; nor durability where the server runs with `synchronous_commit` off.
    """
    _check_dsn(dsn)
    _check("postgres_upsert", table, row, key_columns, receipts)
    return _postgres_upsert(dsn, table, dict(row), list(key_columns), receipts=receipts)


@effect(name="postgres_upsert", certain=(UpsertFailed, OSError, UsageError), ambiguous=(UpsertUnconfirmed,))
def _postgres_upsert(dsn: str, table: str, row: Row, key_columns: list[str], *, receipts: str | None) -> Row:
    _need_psycopg()
    import psycopg

    connection = _postgres(dsn)
    try:
        if receipts is None or _is_new_in_postgres(connection, receipts):
            connection.execute(_statement(table, row, key_columns, mark="%s").encode(), tuple(row.values()))
    except psycopg.Error as error:
        connection.close()
        raise UpsertFailed(f"{table}: {error}") from error
    try:
        connection.commit()
    except psycopg.Error as error:
        raise UpsertUnconfirmed(f"{table}: {error}") from error
    finally:
        connection.close()
    return {column: row[column] for column in key_columns}


@_postgres_upsert.check
def _is_in_postgres(intent: Intent) -> Verdict:
    arguments = intent.arguments
    with _postgres(arguments["dsn"]) as connection:
        if arguments["receipts"] is not None:
            receipts = _quoted(arguments["receipts"])
            table = connection.execute("SELECT to_regclass(%s)", (receipts,)).fetchone()
            if table is None or table[0] is None:
                return _verdict(intent, found=False, equal=False)
            kept = f"SELECT 1 FROM {receipts} WHERE key = %s".encode()  # noqa: S608 - quoted
            found = connection.execute(kept, (intent.key,)).fetchone()
            return _verdict(intent, found=found is not None, equal=True)
        values, keys = arguments["row"], arguments["key_columns"]
        question = _question(arguments["table"], values, keys, "IS NOT DISTINCT FROM", "%s")
        row = connection.execute(question.encode(), _answers(values, keys)).fetchone()
    return _verdict(intent, found=row is not None, equal=bool(row and row[0]))


def _is_new_in_postgres(connection: psycopg.Connection, receipts: str) -> bool:
    """Keep the effect's key; False where it was kept before."""
    if connection.execute("SELECT to_regclass(%s)", (_quoted(receipts),)).fetchone() == (None,):
        connection.execute(_receipts_table(receipts).encode())
    kept = f"INSERT INTO {_quoted(receipts)} (key) VALUES (%s) ON CONFLICT DO NOTHING"  # noqa: S608 - quoted
    return connection.execute(kept.encode(), (current().key,)).rowcount == 1


def _postgres(dsn: str) -> psycopg.Connection:
    _need_psycopg()
    import psycopg

    text = dsn
    if dsn.startswith("$"):
        text = os.environ.get(dsn[1:], "")
        if not text:
            raise UsageError(
                f"postgres_upsert: the environment has no {dsn[1:]}.",
                safe="nothing was changed.",
                hint=f"export {dsn[1:]}=postgresql://…",
            )
    try:
        return psycopg.connect(text, connect_timeout=_CONNECT_SECONDS)
    except psycopg.Error as error:
        raise UpsertFailed(f"Postgres cannot be reached: {error}") from error


def _need_psycopg() -> None:
    try:
        import psycopg  # noqa: F401 - whether it is there
    except ImportError as error:
        raise UsageError(
            "postgres_upsert needs psycopg, which is not installed.",
            safe="nothing was changed.",
            hint="pip install 'perdure[postgres]'",
        ) from error


def _verdict(intent: Intent, *, found: bool, equal: bool) -> Verdict:
    if found and equal:
        return happened({column: intent.arguments["row"][column] for column in intent.arguments["key_columns"]})
    if found:
        return cannot_tell("the row is different: as it was before, or as somebody wrote it later")
    if intent.attempt >= _ATTEMPTS:
        return cannot_tell(f"{intent.attempt} attempts have ended without an answer")
    return did_not_happen()


def _statement(table: str, row: Row, key_columns: list[str], *, mark: str) -> str:
    columns = ", ".join(_quoted(column) for column in row)
    marks = ", ".join([mark] * len(row))
    keys = ", ".join(_quoted(column) for column in key_columns)
    changed = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in row if name not in key_columns)
    act = f"UPDATE SET {changed}" if changed else "NOTHING"
    return f"INSERT INTO {_quoted(table)} ({columns}) VALUES ({marks}) ON CONFLICT ({keys}) DO {act}"  # noqa: S608


def _question(table: str, row: Row, key_columns: list[str], same: str, mark: str) -> str:
    """Whether the row with this key is as wanted; no row where there is none."""
    others = [f"{_quoted(name)} {same} {mark}" for name in row if name not in key_columns] or ["1 = 1"]
    keys = [f"{_quoted(name)} = {mark}" for name in key_columns]
    return f"SELECT {' AND '.join(others)} FROM {_quoted(table)} WHERE {' AND '.join(keys)}"  # noqa: S608 - quoted


def _answers(row: Row, key_columns: list[str]) -> tuple[Value, ...]:
    others = [value for name, value in row.items() if name not in key_columns]
    return (*others, *(row[name] for name in key_columns))


def _receipts_table(receipts: str) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {_quoted(receipts)}"
        " (key TEXT PRIMARY KEY, kept_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"
    )


def _quoted(name: str) -> str:
    return ".".join(f'"{part}"' for part in name.split("."))


def _check(tool: str, table: object, row: object, key_columns: object, receipts: object) -> None:
    """Refuse what no statement can be made of, before anything is recorded."""
    for word, name in (("table", table), ("receipts", receipts)):
        if name is not None and not _is_name(name, parts=2):
            raise _misused(tool, f"{word}={name!r} is not the name of a table.", "letters, digits and underscores")
    if table is None:
        raise _misused(tool, "no table was named.", f"{tool}(…, 'orders', …)")
    if not isinstance(row, Mapping) or not row or not all(_is_name(name, parts=1) for name in row):
        raise _misused(tool, f"row={row!r} does not map names of columns to values.", "{'id': 1, 'name': 'Ada'}")
    for name, value in row.items():
        if not _is_value(value):
            raise _misused(
                tool, f"row[{name!r}] is {value!r}, which no column can hold.", "text, number, bytes, bool or None"
            )
    if isinstance(key_columns, (str, bytes)) or not isinstance(key_columns, Sequence) or not key_columns:
        raise _misused(tool, f"key_columns={key_columns!r} is no list of columns.", "key_columns=['id']")
    missing = [name for name in key_columns if name not in row or row[name] is None]
    if missing:
        raise _misused(tool, f"the row has no value for its key {missing[0]!r}.", "key columns are in the row, and set")


def _is_name(name: object, *, parts: int) -> bool:
    if not isinstance(name, str) or len(name) > 128:  # noqa: PLR2004 - no database takes longer ones
        return False
    pieces = name.split(".")
    return len(pieces) <= parts and all(piece.isidentifier() for piece in pieces)


def _is_value(value: object) -> bool:
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int):
        return value in _SQLITE_INTS
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, (str, bytes))


def _check_dsn(dsn: object) -> None:
    if not isinstance(dsn, str) or not dsn or "\0" in dsn:
        raise _misused("postgres_upsert", f"dsn={dsn!r} is no connection string.", "postgresql://host/database")
    if dsn.startswith("$"):
        return
    _need_psycopg()
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.Error:
        raise _misused("postgres_upsert", "the connection string cannot be read.", "postgresql://host/db") from None
    if "password" in parts:
        raise _misused(
            "postgres_upsert",
            "the connection string holds a password, which would be recorded with the call.",
            "pass '$NAME' and export NAME, or use ~/.pgpass or PGPASSWORD",
        )


def _misused(tool: str, what: str, hint: str) -> UsageError:
    return UsageError(f"{tool}: {what}", safe="nothing was changed.", hint=hint)
