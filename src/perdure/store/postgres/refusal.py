"""What a PostgreSQL server refuses, in our words: what happened, what is safe, what to do; and what may pass by itself.

A server that refuses a connection says why in words alone, so these are read too. A password is in none of ours.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import errors as server

from perdure.errors import InvalidSettings, PerdureError, StoreFull, StoreReadOnly, StoreUnavailable

if TYPE_CHECKING:
    from perdure.store.postgres.location import Location

BROKEN: Final = (psycopg.OperationalError, psycopg.InterfaceError)
"""How psycopg says that the line is gone, or never was."""

AGAIN: Final = (server.SerializationFailure, server.DeadlockDetected)
"""How a server says that the same transaction may succeed the next time."""

_ACKNOWLEDGED: Final = "what was acknowledged stands; nothing more is performed."
_FINAL: Final = (
    "authentication failed",
    "does not exist",
    "no password supplied",
    "pg_hba.conf",
    "is not permitted to log in",
    "certificate",
    "server does not support SSL",
)
_MISSING_DATABASE: Final = re.compile(r'database "(?P<name>[^"]*)" does not exist')
_MISSING_ROLE: Final = re.compile(r'role "(?P<name>[^"]*)" (does not exist|is not permitted to log in)')
_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*")
_CREATE: Final = re.compile(r"permission denied for (database|schema)")


def is_final(error: BaseException) -> bool:
    """Whether the server will say the same however often it is asked."""
    text = str(error)
    return isinstance(error, (server.InvalidPassword, server.InvalidAuthorizationSpecification)) or any(
        sign in text for sign in _FINAL
    )


def plain(error: BaseException, location: Location) -> PerdureError:
    """An error of the server or of the way to it, in our words."""
    if isinstance(error, PerdureError):
        return error
    said = location.scrubbed(_said(error))
    where = location.shown
    match error:
        case server.ReadOnlySqlTransaction():
            return StoreReadOnly(
                f"{where} only lets itself be read: {said}.",
                safe="what was acknowledged stands.",
                hint="name the primary server, not a replica; or take default_transaction_read_only back",
            )
        case server.DiskFull():
            return StoreFull(
                f"The disk of {where} is full: {said}.",
                safe="what was acknowledged stands; nothing more is performed.",
                hint="make room on the server's disk, then start again; perdure gc removes old runs",
            )
        case server.OutOfMemory() | server.ConfigurationLimitExceeded():
            return StoreUnavailable(
                f"{where} has no memory left for this: {said}.",
                safe=_ACKNOWLEDGED,
                hint="let the server have more memory, or start fewer processes, then start again",
            )
        case server.InsufficientPrivilege():
            return _lacksrights(said, location)
        case server.UndefinedTable() | server.InvalidSchemaName():
            return StoreUnavailable(
                f"There is no store in {where} (schema {location.schema}).",
                safe="nothing was changed.",
                hint="perdure migrate makes the tables; so does the first run or worker",
            )
        case psycopg.ProgrammingError() if "URI" in said or "connection option" in said or "conninfo" in said:
            return InvalidSettings(f"store {where}: {said}.", safe="nothing was started.", hint="mend the URL")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return _unreachable(said, location)
        case _:
            return StoreUnavailable(
                f"{where}: {said}.", safe="what was acknowledged stands.", hint="perdure verify; perdure doctor"
            )


def _unreachable(said: str, location: Location) -> StoreUnavailable:
    """The server did not let us in, or is not there."""
    where = location.shown
    if "authentication failed" in said or "no password supplied" in said:
        return StoreUnavailable(
            f"{where} does not accept the password: {_last_words(said)}.",
            safe="nothing was started.",
            hint="put the right password into the URL (percent-encoded), PGPASSWORD or ~/.pgpass",
        )
    if found := _MISSING_DATABASE.search(said):
        return StoreUnavailable(
            f"{where} has no database {found['name']!r}.",
            safe="nothing was started.",
            hint=f"createdb {found['name']}, or mend the name after the last / of the URL",
        )
    if found := _MISSING_ROLE.search(said):
        return StoreUnavailable(
            f"{where} knows no role {found['name']!r} that may log in.",
            safe="nothing was started.",
            hint=f"createuser {found['name']}, or mend the name before the @ of the URL",
        )
    if "too many clients" in said or "connection slots" in said or "too many connections" in said:
        return StoreUnavailable(
            f"{where} accepts no more connections: {_last_words(said)}.",
            safe=_ACKNOWLEDGED,
            hint="raise max_connections, or start fewer processes: each takes up to six connections",
        )
    if "starting up" in said or "shutting down" in said or "in recovery mode" in said:
        return StoreUnavailable(
            f"{where} does not serve yet: {_last_words(said)}.", safe=_ACKNOWLEDGED, hint="start again in a moment"
        )
    return StoreUnavailable(
        f"{where} cannot be reached: {said}.",
        safe=_ACKNOWLEDGED,
        hint="see that the server runs and that host and port of the URL are right, then start again",
    )


def _lacksrights(said: str, location: Location) -> StoreUnavailable:
    """The role is let in, and may not do what is needed: which words of its owner mend that."""
    schema, role = quoted(location.schema), quoted(location.role) if location.role else "THE_ROLE"
    if _CREATE.search(said) or "must be owner" in said:
        hint = (
            "let the owner of the database make the tables (perdure migrate) and say "
            f"GRANT USAGE ON SCHEMA {schema} TO {role}; {rights(schema, role)}"
        )
    else:
        hint = f"let the owner of the tables say {rights(schema, role)}"
    return StoreUnavailable(
        f"The role may not do this in {location.shown}: {said.splitlines()[0]}.",
        safe="nothing was changed.",
        hint=hint,
    )


def rights(schema: str, role: str) -> str:
    """What the owner of the tables says to let a role work with them."""
    return (
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}; "
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    )


def quoted(name: str) -> str:
    """A name as it is written in a statement."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _said(error: BaseException) -> str:
    """The words of an error on one line, without the question that libpq adds to each."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = " ".join(line for line in lines if line and not line.startswith("Is the server running"))
    return told.removeprefix("connection failed: ").rstrip(".")


def _last_words(said: str) -> str:
    """What the server itself said, without where it was asked."""
    return said.rpartition("FATAL:")[2].strip() or said
