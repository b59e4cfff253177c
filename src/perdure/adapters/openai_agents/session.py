"""`PerdureSession`: the history of a conversation in the store, each change whole and in order, and no call left open.

A session is a row that counts, and a row for each item under its number. Inside a run each operation is a step, and
each change leaves its key with it, so a resume neither adds an item twice nor reads what came later.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec
from agents.memory import SessionSettings
from msgspec import Struct

from perdure import typed
from perdure.adapters import calls
from perdure.adapters.calls import STEP
from perdure.adapters.openai_agents.orphans import closed
from perdure.engine.scope import current_frame
from perdure.errors import StoreUnavailable
from perdure.settings import Settings, current_settings
from perdure.store import open_cabinet
from perdure.store.cabinet import Cabinet, Rows, key_of

_HEAD: Final = b"oh"
_ITEM: Final = b"oi"
_DONE: Final = b"od"
_DIGITS: Final = 12


class Kept(Struct, frozen=True, omit_defaults=True):
    """One item of a history, and the run that added it."""

    item: Any
    run_id: str = ""


class PerdureSession:
    """A session of the OpenAI Agents SDK that is kept in a perdure store: what was added is there after any crash.

    `store` is a path, `sqlite:PATH`, `postgresql://…` or `memory:`; without one, the store that the settings name. Tool
    calls that a dead process left without an output are answered when the history is read: with what is on record of
    them, or with the plain words that they are in doubt, or were never begun.
    """

    session_settings: SessionSettings | None = None

    def __init__(self, session_id: str, store: str | os.PathLike[str] | None = None) -> None:
        self.session_id = session_id
        self._location = None if store is None else os.fspath(store)
        self._opening = threading.Lock()
        self._opened: Cabinet | None = None
        self._is_closed = False

    def close(self) -> None:
        """Let go of the store; what was acknowledged stays."""
        with self._opening:
            self._is_closed = True
            if self._opened is not None:
                self._opened.close()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The history in its order, or the newest items of it; no tool call in it is without an output."""
        items: list[Any] = await self._recorded("history", lambda _: self._read(limit), limit=limit)
        return items

    async def add_items(self, items: list[Any]) -> None:
        """Add to the history, all of it or nothing; when this returns it is synced."""
        plain = msgspec.to_builtins(items)
        if plain:
            await self._recorded("add", lambda token: self._add(plain, token), items=plain)

    async def pop_item(self) -> Any:
        """Take the newest item away."""
        return await self._recorded("pop", self._pop)

    async def clear_session(self) -> None:
        """Forget the history."""
        await self._recorded("clear", self._clear)

    async def _recorded(self, verb: str, act: Callable[[str], Any], **arguments: Any) -> Any:
        """Do this once: inside a run as a step of it, elsewhere at once."""
        if calls.run_here() is None:
            return await asyncio.to_thread(act, "")
        key = calls.numbered(f"{self.session_id}/{verb}")
        token = f"{_run_id()}/{key}"

        async def unit(**_: Any) -> Any:
            return await asyncio.to_thread(act, token)

        return await calls.perform(unit, name=f"session.{verb}", key=key, arguments=arguments, policy=STEP)

    def _read(self, limit: int | None) -> list[Any]:
        kept = self._cabinet.read(self._kept)
        items = closed(kept)
        return items if limit is None else items[max(0, len(items) - limit) :] if limit > 0 else []

    def _kept(self, rows: Rows) -> list[tuple[Any, str]]:
        found = rows.scan(key_of(_ITEM, self.session_id))
        kept = [typed.read(value, Kept) for _, value in found]
        return [(each.item, each.run_id) for each in kept]

    def _add(self, items: list[Any], token: str) -> None:
        run_id = token.partition("/")[0]

        def write(rows: Rows) -> None:
            if self._is_done(rows, token):
                return
            first = self._count(rows)
            rows.put(
                {self._place(first + at): msgspec.json.encode(Kept(item, run_id)) for at, item in enumerate(items)}
                | {self._head: str(first + len(items)).encode()}
            )

        self._cabinet.write(write, power=self._power)

    def _pop(self, token: str) -> Any:
        def write(rows: Rows) -> Any:
            if token and (done := rows.get([self._done(token)])):
                return msgspec.json.decode(done[self._done(token)])
            newest = rows.newest(key_of(_ITEM, self.session_id), limit=1)
            item = typed.read(rows.get(newest)[newest[0]], Kept).item if newest else None
            rows.remove(newest)
            if token:
                rows.put({self._done(token): msgspec.json.encode(item)})
            return item

        return self._cabinet.write(write, power=self._power)

    def _clear(self, token: str) -> None:
        def write(rows: Rows) -> None:
            if not self._is_done(rows, token):
                rows.clear(key_of(_ITEM, self.session_id))

        self._cabinet.write(write, power=self._power)

    def _is_done(self, rows: Rows, token: str) -> bool:
        """Whether this very change was made before; if not, it is now."""
        rows.hold(self._head, alone=True)
        if not token:
            return False
        if rows.get([self._done(token)]):
            return True
        rows.put({self._done(token): b"null"})
        return False

    def _count(self, rows: Rows) -> int:
        """How many items were ever added: numbers are not given twice."""
        found = rows.get([self._head])
        return int(found[self._head]) if found else 0

    @property
    def _head(self) -> bytes:
        return key_of(_HEAD, self.session_id)

    def _place(self, number: int) -> bytes:
        return key_of(_ITEM, self.session_id, f"{number:0{_DIGITS}}")

    def _done(self, token: str) -> bytes:
        return key_of(_DONE, self.session_id, token)

    @property
    def _power(self) -> bool:
        return current_settings().durability == "power"

    def _settings(self) -> Settings:
        settings = current_settings()
        return msgspec.structs.replace(settings, store=self._location or settings.store)

    @property
    def _cabinet(self) -> Cabinet:
        with self._opening:
            if self._is_closed:
                raise StoreUnavailable(
                    "The session was closed.", safe="what it acknowledged stands.", hint="make a new PerdureSession"
                )
            if self._opened is None:
                self._opened = open_cabinet(self._settings())
            return self._opened


def _run_id() -> str:
    frame = current_frame()
    return frame.active.row.run_id if frame is not None and frame.active is not None else ""
