"""The bodies of answers as aiohttp reads them: live ones behind a recorder, and recorded ones."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from perdure.adapters.http.dropped import note_closed, note_dropped, note_open

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from types import TracebackType

    from perdure.adapters.http.exchange import ModelCall


class Recorder:
    """Records a streamed answer, and what was read of one that the script left."""

    def __init__(self, call: ModelCall, response: Any) -> None:
        self._call = call
        self._body = call.body()
        self._status = response.status
        self._headers = plain(response.headers)
        self._live = response.content
        note_open(call)

    async def more(self) -> AsyncIterator[bytes]:
        """What may be handed on when the next piece has come; the end of the answer is recorded before. Then b""."""
        body = self._body
        try:
            piece = await self._next()
        except BaseException:
            note_closed(self._call)
            raise
        for ready in body.ready():
            yield ready
        if not piece:
            note_closed(self._call)
            yield b""

    def leave(self) -> None:
        """The script reads no further: what it has read is all there is."""
        if self._body.was_left():
            self._commit_cut()

    async def leave_async(self) -> None:
        """The same, letting the event loop go on."""
        if self._body.was_left():
            await self._commit_async(is_cut=True)

    def drop(self) -> None:
        """The same, where nobody said so."""
        if self._body.was_left():
            note_dropped(self._commit_cut)

    async def _next(self) -> bytes:
        body = self._body
        with body:
            piece, is_end = await self._live.readchunk()
            while is_end and not piece:
                piece, is_end = await self._live.readchunk()
            if body.take(piece) if piece else body.end():
                await self._commit_async(is_cut=False)
        return bytes(piece)

    def _commit_cut(self) -> None:
        body = self._body
        note_closed(self._call)
        self._call.commit(self._status, self._headers, body.whole, is_cut=True, has_failed=body.has_failed)

    async def _commit_async(self, *, is_cut: bool) -> None:
        body = self._body
        note_closed(self._call)
        how = {"is_cut": is_cut, "has_failed": body.has_failed}
        await self._call.commit_async(self._status, self._headers, body.whole, **how)


def record(module: Any, response: Any, call: ModelCall) -> None:
    """Have what is read of a live answer recorded before its end is handed on."""
    recorder = Recorder(call, response)
    response.content = _recording(module)(recorder, response)
    response.recorder = recorder
    response.__class__ = _recorded(response.__class__)


def filled(module: Any, loop: Any, pieces: Iterable[bytes], **how: Any) -> Any:
    """A reader with a whole body in it; one that is cut breaks where the script stopped reading."""
    reader = (_cut(module) if how.get("is_cut") else module.StreamReader)(_Still(), how["limit"], loop=loop)
    if how.get("is_chunked"):
        reader.begin_http_chunk_receiving()
    for piece in pieces:
        reader.feed_data(piece)
        if how.get("is_chunked"):
            reader.end_http_chunk_receiving()
    reader.feed_eof()
    return reader


def plain(headers: Any) -> dict[str, str]:
    """Headers as any library has them."""
    return {"".join(name): "".join(value) for name, value in headers.items()}


@functools.lru_cache(maxsize=1)
def _recording(module: Any) -> type:
    class Recording(module.StreamReader):  # type: ignore[misc]
        """The body of an answer while it comes."""

        def __init__(self, recorder: Recorder, response: Any) -> None:
            live = response.content
            super().__init__(_Still(), live.get_read_buffer_limits()[0], loop=live._loop)  # noqa: SLF001
            self._recorder = recorder
            self._is_chunked = response.headers.get("Transfer-Encoding", "").lower() == "chunked"
            if self._is_chunked:
                self.begin_http_chunk_receiving()

        async def _wait(self, func_name: str) -> None:
            """Every way to read comes here when it has nothing left."""
            del func_name
            async for piece in self._recorder.more():
                if not piece:
                    self.feed_eof()
                    return
                self.feed_data(piece)
                if self._is_chunked:
                    self.end_http_chunk_receiving()

        def __del__(self) -> None:
            """A script may hold this and not the response: as long as it does, it may read on."""
            self._recorder.drop()

    return Recording


@functools.lru_cache(maxsize=8)
def _recorded(kind: Any) -> type:
    class Recorded(kind):  # type: ignore[misc]
        """A streamed answer as the script has it, of the class that its session makes."""

        def close(self) -> None:
            self.recorder.leave()
            super().close()

        def release(self) -> Any:
            self.recorder.leave()
            return super().release()

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            await self.recorder.leave_async()
            await super().__aexit__(kind, error, trace)

    return Recorded


@functools.lru_cache(maxsize=1)
def _cut(module: Any) -> type:
    class Cut(module.StreamReader):  # type: ignore[misc]
        """A body that the script did not read to its end; there is no more of it."""

        async def _wait(self, func_name: str) -> None:
            del func_name
            raise module.ClientPayloadError("The rest of this answer was not read, and not recorded.")

        def feed_eof(self) -> None:
            """It has no end."""

    return Cut


class _Still:
    """The protocol of a reader that is fed by us: no connection is there to be slowed down."""

    connected = True
    _reading_paused = False

    def pause_reading(self) -> None:
        """Nothing comes while nobody asks."""

    def resume_reading(self, **_: Any) -> None:
        """The same."""
