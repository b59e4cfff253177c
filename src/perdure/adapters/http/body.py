"""A streamed answer on its way to a script: its end is held back until the whole of it is recorded.

A script may act as soon as it sees why the model stopped: what comes from there on is handed on only when the answer is
in the journal. Of a stream that broke off before, it is recorded that it did, and how far it came.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from perdure.adapters.http.stream import Terminal

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
    from types import TracebackType

    from perdure.adapters.http.endpoints import Dialect


class Body:
    """What has come of an answer; entered while it is read."""

    def __init__(self, dialect: Dialect, break_off: Callable[[bytes], object]) -> None:
        """`break_off` records what had come of a stream that broke."""
        self._terminal = Terminal(dialect)
        self._break_off = break_off
        self._parts: list[bytes] = []
        self._held: list[bytes] = []
        self._is_recorded = False
        self._has_broken = False
        self._has_ended = False

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_broken = kind is not None and kind is not GeneratorExit
        is_told = kind is not None and issubclass(kind, (Exception, asyncio.CancelledError))
        if is_told and not self._has_ended and self._is_due():
            self._break_off(self.whole)

    @property
    def whole(self) -> bytes:
        """Everything that has come."""
        return b"".join(self._parts)

    @property
    def has_failed(self) -> bool:
        """Whether the stream says that the model failed."""
        return self._terminal.has_failed

    def take(self, chunk: bytes) -> bool:
        """A chunk has come; whether the answer is whole with it, and must be recorded now."""
        self._parts.append(chunk)
        self._held.append(chunk)
        return self._terminal.feed(chunk) is not None and self._is_due()

    def end(self) -> bool:
        """The body has ended; whether that makes the answer whole."""
        self._has_ended = True
        return self._terminal.end() and self._is_due()

    def ready(self) -> Iterator[bytes]:
        """What may be handed on now."""
        if self._is_recorded or self._has_ended or self._terminal.finish_at is None:
            held, self._held = self._held, []
            yield from held

    def was_left(self) -> bool:
        """Whether the script stopped reading of its own accord, and not because something failed or was cancelled."""
        failing = sys.exc_info()[0]
        is_own = failing is None or failing is GeneratorExit
        is_open = not (self._has_broken or self._has_ended)
        return is_own and is_open and bool(self._parts) and self._is_due()

    def _is_due(self) -> bool:
        is_due, self._is_recorded = not self._is_recorded, True
        return is_due


def handed_on(body: Body, chunks: Iterable[bytes], commit: Callable[[], object]) -> Iterator[bytes]:
    """The chunks of an answer as they come, its end only when it is recorded."""
    with body:
        for chunk in chunks:
            if body.take(chunk):
                commit()
            yield from body.ready()
        if body.end():
            commit()
        yield from body.ready()


async def handed_on_async(
    body: Body, chunks: AsyncIterable[bytes], commit: Callable[[], Awaitable[object]]
) -> AsyncIterator[bytes]:
    """The same for async clients."""
    with body:
        async for chunk in chunks:
            if body.take(chunk):
                await commit()
            for ready in body.ready():
                yield ready
        if body.end():
            await commit()
        for ready in body.ready():
            yield ready
