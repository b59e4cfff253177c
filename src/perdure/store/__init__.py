"""Where records live. `open_store` picks the implementation a location names."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.errors import InvalidSettings
from perdure.settings import Settings
from perdure.store.health import room_bytes
from perdure.store.sql import load_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.store.cabinet import Cabinet
    from perdure.store.postgres.health import Examined
    from perdure.store.protocol import Store


_SCHEMES: Final = ("postgresql", "postgres", "sqlite", "memory")


def open_settings(settings: Settings, *, create: bool = True) -> Store:
    """The store that the settings name, opened as they say."""
    return open_store(
        settings.store,
        create=create,
        seconds=settings.open_seconds,
        lease_seconds=settings.lease_seconds,
        away_seconds=settings.away_seconds,
        room_mb=settings.room_mb,
    )


def open_store(
    location: str,
    *,
    create: bool = True,
    seconds: float = 10.0,
    lease_seconds: float = 30.0,
    away_seconds: float = 120.0,
    room_mb: float = 0.0,
) -> Store:
    """The store at a location: a path, `sqlite:PATH`, `postgresql://…` or `memory:`.

    Without `create` it must exist and is only read.
    """
    scheme, colon, _ = location.partition(":")
    if colon and scheme == "memory":
        from perdure.store.memory import MemoryStore  # only tests and trials need it

        return MemoryStore()
    if _is_server(location):
        return _open_postgres(
            location, create=create, seconds=seconds, lease_seconds=lease_seconds, away_seconds=away_seconds
        )
    path = file_of(location)
    if path is None:
        raise _unknown(location)
    from perdure.store.sqlite import SqliteStore  # loads the engine only when it is used

    return SqliteStore(path, create=create, seconds=seconds, room_bytes=room_bytes(room_mb))


def open_cabinet(settings: Settings) -> Cabinet:
    """What adapters keep, in the store that the settings name."""
    location = settings.store
    if location.partition(":")[0] == "memory" and ":" in location:
        from perdure.store.cabinet import MemoryCabinet  # only tests and trials need it

        return MemoryCabinet()
    if _is_server(location):
        with _needing_psycopg():
            from perdure.store.postgres.cabinet import PostgresCabinet
        return PostgresCabinet(location, seconds=settings.open_seconds, away_seconds=settings.away_seconds)
    path = file_of(location)
    if path is None:
        raise _unknown(location)
    from perdure.store.sqlite.cabinet import SqliteCabinet  # loads the engine only when it is used

    return SqliteCabinet(path, seconds=settings.open_seconds)


def schema_versions(settings: Settings) -> tuple[int, int]:
    """The schema version that the store has, 0 where there is none yet, and the one that this perdure knows."""
    path = file_of(settings.store)
    if path is None and _is_server(settings.store):
        with _needing_psycopg():
            from perdure.store.postgres.migrate import read_version as version_on_server
        found = version_on_server(settings.store, seconds=settings.open_seconds)
        return found, len(load_schema("postgres"))
    if path is None:
        raise _unknown(settings.store)
    from perdure.store.sqlite.connect import read_version  # loads the engine only when it is used

    found = read_version(Path(path).expanduser().absolute(), busy_seconds=settings.open_seconds)
    return found, len(load_schema("sqlite"))


def examined_server(settings: Settings) -> Examined:
    """A look at the server that keeps the store."""
    if not _is_server(settings.store):
        raise _unknown(settings.store)
    with _needing_psycopg():
        from perdure.store.postgres.health import Examined
    return Examined(settings.store, seconds=settings.open_seconds)


def shown(location: str) -> str:
    """A location as it may be seen, also where something is wrong with it: never with a password."""
    scheme, mark, rest = location.partition(":/")
    if not mark:
        return location
    before, at, after = rest.rpartition("@")
    return re.sub(r"(password=)[^&]*", r"\1…", f"{scheme}{mark}{before.partition(':')[0]}{at}{after}")


def file_of(location: str) -> str | None:
    """The path of the file that a location names; None where it names no file."""
    scheme, colon, rest = location.partition(":")
    if colon and scheme == "sqlite":
        return rest.removeprefix("//")
    return None if colon and len(scheme) > 1 else location


def _is_server(location: str) -> bool:
    return location.partition(":")[0] in ("postgres", "postgresql") and ":" in location


def _unknown(location: str) -> InvalidSettings:
    import difflib  # slow to load, and only needed here

    scheme = location.partition(":")[0]
    close = difflib.get_close_matches(scheme.lower(), _SCHEMES, n=1)
    meant = f"did you mean {close[0]}:{'//' if close[0].startswith('p') else ''}? " if close else ""
    return InvalidSettings(
        f"store {shown(location)!r}: {scheme}: is no kind of store.",
        safe="nothing was started.",
        hint=f"{meant}name a path such as ./.perdure/perdure.db, or postgresql://user@host/database",
    )


def _open_postgres(location: str, *, create: bool, seconds: float, lease_seconds: float, away_seconds: float) -> Store:
    with _needing_psycopg():
        from perdure.store.postgres import PostgresStore
    return PostgresStore(
        location, create=create, seconds=seconds, lease_seconds=lease_seconds, away_seconds=away_seconds
    )


@contextlib.contextmanager
def _needing_psycopg() -> Iterator[None]:
    """An extra, imported where it is used."""
    try:
        yield
    except ImportError as error:
        raise InvalidSettings(
            f"A store on PostgreSQL needs psycopg: {error}.",
            safe="nothing was started.",
            hint="pip install 'perdure[postgres]'",
        ) from error
