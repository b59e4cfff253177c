"""Where records live. `open_store` picks the implementation a location names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import InvalidSettings

if TYPE_CHECKING:
    from perdure.store.protocol import Store


def open_store(location: str, *, create: bool = True, seconds: float = 10.0, lease_seconds: float = 30.0) -> Store:
    """The store at a location: a path, `sqlite:PATH`, `postgresql://…` or `memory:`.

    Without `create` it must exist and is only read.
    """
    scheme, colon, _ = location.partition(":")
    if colon and scheme == "memory":
        from perdure.store.memory import MemoryStore  # only tests and trials need it

        return MemoryStore()
    if colon and scheme in ("postgres", "postgresql"):
        return _open_postgres(location, create=create, seconds=seconds, lease_seconds=lease_seconds)
    path = file_of(location)
    if path is None:
        raise InvalidSettings(
            f"store {location!r}: {scheme}: is no kind of store.",
            safe="nothing was started.",
            hint="name a path such as ./.perdure/perdure.db, or postgresql://user@host/database",
        )
    from perdure.store.sqlite import SqliteStore  # loads the engine only when it is used

    return SqliteStore(path, create=create, seconds=seconds)


def file_of(location: str) -> str | None:
    """The path of the file that a location names; None where it names no file."""
    scheme, colon, rest = location.partition(":")
    if colon and scheme == "sqlite":
        return rest.removeprefix("//")
    return None if colon and len(scheme) > 1 else location


def _open_postgres(location: str, *, create: bool, seconds: float, lease_seconds: float) -> Store:
    try:
        from perdure.store.postgres import PostgresStore  # an extra, imported where it is used
    except ImportError as error:
        raise InvalidSettings(
            f"A store on PostgreSQL needs psycopg: {error}.",
            safe="nothing was started.",
            hint="pip install 'perdure[postgres]'",
        ) from error
    return PostgresStore(location, create=create, seconds=seconds, lease_seconds=lease_seconds)
