"""Where a trial happens: a folder of its own, and a store of its own in it, or in a schema of its own on a server."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from perdure import clock
from perdure.errors import StoreUnavailable, UsageError
from perdure.settings import Settings
from perdure.store import examined_server, open_store, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.store.protocol import Store

SCHEMA_FILE: Final = "schema"
"""Names the server, without its password, and the schema that the trial has on it, for whoever tidies up."""

_REACH_SECONDS: Final = 3.0


class Place:
    """The folder of one trial: `work` is where its processes run, `logs` what they wrote, and the store beside them."""

    def __init__(self, folder: Path, *, server: str = "", files: Sequence[str] = ()) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.logs = folder / "logs"
        self.work.mkdir(parents=True)
        self.logs.mkdir()
        self._schema = f"crash_{clock.new_token(16)}" if server else ""
        self.database = self.work / ".perdure" / "perdure.db"
        """The SQLite file of the trial."""
        self.store = with_schema(server, self._schema) if server else str(self.database)
        self._server = server
        if server:
            (folder / SCHEMA_FILE).write_text(f"{shown(server)}\n{self._schema}\n")
        for file in files:
            _copy(Path(file), self.work)

    @property
    def is_there(self) -> bool:
        """Whether a process has made the store yet."""
        return bool(self._server) or (self.database.exists() and self.database.stat().st_size > 0)

    def keep_store_in(self, folder: Path) -> None:
        """Let the store be made elsewhere, before any process is started."""
        self.database = folder / ".perdure" / "perdure.db"
        self.store = str(self.database)

    def open(self, *, create: bool = False) -> Store:
        """The store, to be read, or to be written to as a person does."""
        return open_store(self.store, create=create)

    def clear(self, *, keep: bool) -> None:
        """Leave nothing on the server, and no folder unless it is to be kept."""
        if self._server:
            drop_schema(self._server, self._schema)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def with_schema(url: str, schema: str) -> str:
    """The same server, with this schema instead of the one that the URL names."""
    parts = urlsplit(url)
    options = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "schema"]
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode([*options, ("schema", schema)]), ""))


def refuse_unreachable(url: str) -> None:
    """Say at once what is wrong with a server, and not in every trial."""
    if not url:
        return
    for sign in examined_server(Settings(store=url, open_seconds=_REACH_SECONDS)).signs:
        if sign.level == "problem":
            raise StoreUnavailable(sign.what, safe="nothing was started.", hint=sign.fix)


def drop_schema(url: str, schema: str) -> None:
    """Remove the schema of a trial and everything in it; a server that is away keeps it."""
    import psycopg

    from perdure.store.postgres.location import read_location

    with (
        contextlib.suppress(psycopg.OperationalError),
        psycopg.connect(read_location(url).url, autocommit=True) as connection,
    ):
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def _copy(source: Path, folder: Path) -> None:
    try:
        if source.is_dir():
            shutil.copytree(source, folder / source.name, dirs_exist_ok=True)
        else:
            shutil.copy2(source, folder / source.name)
    except OSError as error:
        raise UsageError(
            f"--copy {source} cannot be copied: {error.strerror}.", safe="nothing was started.", hint="name a file"
        ) from error
