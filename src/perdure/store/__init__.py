"""Where records live. `open_store` picks the implementation a location names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import InvalidSettings

if TYPE_CHECKING:
    from perdure.store.protocol import Store


def open_store(location: str, *, create: bool = True, seconds: float = 10.0) -> Store:
    """The store at a location: a path, `sqlite:PATH` or `memory:`. Without `create` it must exist and is only read."""
    scheme, colon, rest = location.partition(":")
    if colon and scheme == "memory":
        from perdure.store.memory import MemoryStore  # only tests and trials need it

        return MemoryStore()
    if colon and len(scheme) > 1 and scheme != "sqlite":
        raise InvalidSettings(
            f"store {location!r}: this version keeps runs in SQLite files.",
            safe="nothing was started.",
            hint="name a path such as ./.perdure/perdure.db, or memory: for a trial",
        )
    from perdure.store.sqlite import SqliteStore  # loads the engine only when it is used

    path = rest.removeprefix("//") if colon and scheme == "sqlite" else location
    return SqliteStore(path, create=create, seconds=seconds)
