"""Opening a database file safely: the engine gate, the folder, the schema, and SQLite's errors in our words."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from perdure.errors import (
    CheckpointCorrupt,
    PerdureError,
    SchemaTooNew,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeEngine,
)
from perdure.store.sql import load_schema
from perdure.store.sqlite.fork import is_open_here

if TYPE_CHECKING:
    from collections.abc import Iterator

APPLICATION_ID: Final = 0x50524455
"""`PRDU`: how file tools and we ourselves recognise one of our databases."""

PAGE_BYTES: Final = 2048
"""Of a new database; an older one keeps the 4096 it has. What a model says is one to four kilobytes long, of which few
fit into one page: larger pages stay half empty. Smaller ones make commits of many runs at once longer."""

LOG_BYTES: Final = 4_096_000
"""How long the log grows before it is moved into the database, which takes two more syncs."""

_HEADER: Final = b"SQLite format 3\0"
_SAFE_FROM: Final = (3, 51, 3)
_SAFE_BACKPORTS: Final = frozenset({(3, 50, 7), (3, 44, 6)})
_ACKNOWLEDGED: Final = "every step acknowledged before is saved."


def gate(version: str = "") -> None:
    """Refuse an SQLite in which two writing connections can corrupt a WAL database."""
    text = version or apsw.sqlite_lib_version()
    numbers = tuple(int(part) for part in text.split("."))
    if numbers < _SAFE_FROM and numbers not in _SAFE_BACKPORTS:
        raise UnsafeEngine(
            f"SQLite {text} can corrupt a database that two processes write (fixed in 3.51.3).",
            safe="nothing was opened or written.",
            hint="pip install --upgrade apsw",
        )


def refuse_directory(path: Path) -> None:
    """A store is a file."""
    if path.is_dir():
        raise StoreUnavailable(
            f"The store {path} is a directory.",
            safe="nothing was changed.",
            hint=f"name a file in it: {_file_in(path)}",
        )


def _file_in(folder: Path) -> Path:
    """The store that is in a folder, or that would be."""
    return next((path for path in _usual_in(folder) if path.is_file()), folder / "perdure.db")


def _usual_in(folder: Path) -> tuple[Path, ...]:
    return folder / "perdure.db", folder / ".perdure" / "perdure.db"


def read_only(path: Path) -> StoreReadOnly:
    """The refusal to change a store that was opened to be read."""
    return StoreReadOnly(
        f"{path} was opened to be read only.", safe="nothing was changed.", hint="open it with create=True to write"
    )


def prepare_folder(path: Path) -> None:
    """Make the folder of a new store, readable by its owner alone and ignored by git."""
    folder = path.parent
    made = [name for name in (path, folder, *folder.parents) if not name.exists()]
    if folder in made:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.name == ".perdure":
            (folder / ".gitignore").write_text("*\n")
    path.touch(mode=0o600)
    for name in made:
        _sync_folder(name.parent)


def _sync_folder(folder: Path) -> None:
    """A synced file is lost with the power all the same if the folder that names it was not synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def connect(path: Path, *, busy_seconds: float) -> apsw.Connection:
    """The connection that writes: it syncs every commit unless told otherwise."""
    connection = _hardened(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE), busy_seconds=busy_seconds)
    connection.pragma("page_size", PAGE_BYTES)
    mode = connection.pragma("journal_mode", "wal")
    if mode != "wal":
        connection.close()
        raise StoreUnavailable(
            f"{path} lies where SQLite cannot share a database between processes (journal mode {mode}).",
            safe="nothing was changed.",
            hint="choose a place on a local disk with PERDURE_STORE",
        )
    connection.pragma("wal_autocheckpoint", LOG_BYTES // connection.pragma("page_size"))
    connection.pragma("synchronous", "full")
    connection.pragma("fullfsync", "on")  # on macOS a plain fsync leaves the data in the device's cache
    return connection


def connect_to_read(path: Path, *, busy_seconds: float) -> apsw.Connection:
    """A connection that changes nothing, not even by moving the write-ahead log into the database when it is closed."""
    connection = _hardened(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY), busy_seconds=busy_seconds)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def _hardened(connection: apsw.Connection, *, busy_seconds: float) -> apsw.Connection:
    """Nothing a file brings along is executed, and a page that makes no sense is refused when it is first read."""
    connection.set_busy_timeout(int(busy_seconds * 1000))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    connection.pragma("cell_size_check", "on")
    return connection


def refuse_other_file(path: Path) -> None:
    """Refuse a file that is no database at all, before anything is put beside it."""
    try:
        if is_open_here(path):
            return
        with path.open("rb") as file:
            header = file.read(len(_HEADER))
    except FileNotFoundError:
        return
    if header and header != _HEADER:
        raise explain(apsw.NotADBError("file is not a database"), path)


def inspect(path: Path, *, busy_seconds: float) -> None:
    """Refuse a database that is not ours or too new for us, before anything could write to it."""
    try:
        _inspect(connect_to_read(path, busy_seconds=busy_seconds), path)
    except apsw.ReadOnlyError:
        # The process that made it was killed on the way to its write-ahead log: SQLite must roll that back to read it.
        writing = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        _inspect(_hardened(writing, busy_seconds=busy_seconds), path)


def _inspect(connection: apsw.Connection, path: Path) -> None:
    try:
        check_schema(connection, path)
    finally:
        connection.close()


def migrate(connection: apsw.Connection, path: Path) -> bool:
    """Bring the schema up to date in one transaction; whether it was made from nothing."""
    schema = load_schema("sqlite")
    version = check_schema(connection, path)
    if version == len(schema):
        return False
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = int(connection.pragma("user_version"))
        for statements in schema[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(schema))
        connection.execute("COMMIT")
    except BaseException:
        rollback(connection)
        raise
    return version == 0


def check_schema(connection: apsw.Connection, path: Path) -> int:
    """The schema version of a database that is ours and not too new."""
    version = int(connection.pragma("user_version"))
    application = int(connection.pragma("application_id"))
    known = len(load_schema("sqlite"))
    is_empty = not connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
    if application != APPLICATION_ID and not (is_empty and version == 0 and application == 0):
        raise StoreUnavailable(
            f"{path} is a database, but not one of perdure's.",
            safe="it was not touched.",
            hint="name another file with PERDURE_STORE",
        )
    if version > known:
        raise SchemaTooNew(
            f"{path} was written by a newer perdure (schema {version}; this one knows up to {known}).",
            safe="it was not touched.",
            hint="pip install --upgrade perdure",
        )
    return version


def read_version(path: Path, *, busy_seconds: float) -> int:
    """The schema version of the database in this file; 0 where there is none."""
    if not path.exists() or not path.stat().st_size:
        return 0
    with plain_errors(path), contextlib.closing(connect_to_read(path, busy_seconds=busy_seconds)) as connection:
        return check_schema(connection, path)


def is_outdated(connection: apsw.Connection, path: Path) -> bool:
    """Whether a database that is ours has the schema of an older perdure."""
    return check_schema(connection, path) < len(load_schema("sqlite"))


def rollback(connection: apsw.Connection) -> None:
    """Leave no transaction open; SQLite may have ended it already."""
    with contextlib.suppress(apsw.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def plain_errors(path: Path | str) -> Iterator[None]:
    """Foreign errors, mapped where they enter: what happened, what is safe, what to do."""
    try:
        yield
    except (apsw.Error, OSError, UnicodeDecodeError) as error:
        raise explain(error, path) from error


def explain(error: BaseException, path: Path | str) -> PerdureError:
    """The error of ours that says what this one means for the user."""
    folder = Path(path).parent
    match error:
        case PerdureError():
            return error
        case apsw.FullError():
            return StoreFull(
                f"No room is left for {path}.",
                safe=_ACKNOWLEDGED,
                hint=f"free space under {folder}, then start again: the run resumes",
            )
        case OSError(errno=28 | 122):
            return StoreFull(
                f"No room is left for {path}.",
                safe=_ACKNOWLEDGED,
                hint=f"free space under {folder}, then start again: the run resumes",
            )
        case apsw.ReadOnlyError() | PermissionError() | OSError(errno=30):
            return StoreReadOnly(
                f"{path} may not be written ({error}).",
                safe=_ACKNOWLEDGED,
                hint=f"give yourself write access to {folder}, or choose another place with PERDURE_STORE",
            )
        case apsw.CantOpenError() if folder.exists() and os.statvfs(folder).f_flag & os.ST_RDONLY:
            return StoreReadOnly(
                f"{path} may not be written: its file system is mounted to be read only.",
                safe=_ACKNOWLEDGED,
                hint=f"mount it to be written, or look at a copy: cp {shlex.quote(str(path))}* ELSEWHERE",
            )
        case apsw.NotADBError():
            return CheckpointCorrupt(
                f"{path} is no store of perdure's ({error}).",
                safe="nothing was changed.",
                hint="name another path with --store or PERDURE_STORE; if it was a store, put back a copy of it",
            )
        case apsw.CorruptError() | UnicodeDecodeError():
            return CheckpointCorrupt(
                f"{path} is damaged ({error}).",
                safe="nothing was changed.",
                hint=f"put back a copy of it; or save what can be read: sqlite3 {shlex.quote(str(path))} .recover;"
                " or move it away, and the next run makes a new store",
            )
        case apsw.BusyError():
            return StoreUnavailable(
                f"{path} is locked by another process.", safe=_ACKNOWLEDGED, hint="start again once it is done"
            )
        case _:
            return StoreUnavailable(
                f"{path} cannot be used: {error or type(error).__name__}.",
                safe=_ACKNOWLEDGED,
                hint=f"check the disk and the rights of {folder}, then start again: the run resumes",
            )
