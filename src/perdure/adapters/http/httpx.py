"""Model calls made by httpx and httpx2, sync and async, streamed and not."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from perdure.adapters.http.body import handed_on, handed_on_async
from perdure.adapters.http.exchange import routed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from types import ModuleType

    from perdure.adapters.http.exchange import ModelCall
    from perdure.adapters.http.record import Answer

_FAILED: Final = 400
_EVENTS: Final = "text/event-stream"
_AT_ONCE: Final = timedelta()


def patch(module: ModuleType) -> None:
    """Have the clients of httpx, or of httpx2, send model calls through the journal."""
    client, async_client = module.Client, module.AsyncClient
    client.send = _send(module, client.send)
    async_client.send = _send_async(module, async_client.send)


def _send(module: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def send(self: Any, request: Any, *args: Any, stream: bool = False, **options: Any) -> Any:
        route = routed(request.method, str(request.url))
        call = None if route is None else route.begun(request.headers, request.read())
        if call is None:
            return original(self, request, *args, stream=stream, **options)
        if call.answer is not None:
            return _replayed(module, request, call.answer, stream=stream)
        if stream:
            request.headers["accept-encoding"] = "identity"  # what is recorded while it comes must be readable
        with call.sending():
            response = original(self, request, *args, stream=stream, **options)
        if not stream:
            answer = call.commit(response.status_code, response.headers, response.content)
            if answer.body != response.content:  # it held a secret: the script gets what it will get again
                return _replayed(module, request, answer, stream=False)
        elif _is_live(response):
            response.stream = _recording(module)(call, response)
        else:
            with call.sending():
                content = response.read()
            call.commit(response.status_code, response.headers, content)
        return response

    return send


def _send_async(module: Any, original: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(original)
    async def send(self: Any, request: Any, *args: Any, stream: bool = False, **options: Any) -> Any:
        route = routed(request.method, str(request.url))
        call = None if route is None else route.begun(request.headers, await request.aread())
        if call is None:
            return await original(self, request, *args, stream=stream, **options)
        if call.answer is not None:
            await call.wait_if_given_up()
            return _replayed(module, request, call.answer, stream=stream)
        if stream:
            request.headers["accept-encoding"] = "identity"
        with call.sending():
            response = await original(self, request, *args, stream=stream, **options)
        if not stream:
            answer = await call.commit_async(response.status_code, response.headers, response.content)
            if answer.body != response.content:  # it held a secret: the script gets what it will get again
                return _replayed(module, request, answer, stream=False)
        elif _is_live(response):
            response.stream = _recording_async(module)(call, response)
        else:
            with call.sending():
                content = await response.aread()
            await call.commit_async(response.status_code, response.headers, content)
        return response

    return send


def _is_live(response: Any) -> bool:
    """Whether the answer comes in events that the script may see one by one; anything else is recorded as a whole."""
    return bool(response.status_code < _FAILED) and str(response.headers.get("content-type", "")).startswith(_EVENTS)


def _replayed(module: Any, request: Any, answer: Answer, *, stream: bool) -> Any:
    """A response as the library would have made it."""
    options = {"headers": answer.headers, "request": request, "extensions": {"http_version": b"HTTP/1.1"}}
    if not stream:
        response = module.Response(answer.status, content=answer.body, **options)
    elif answer.is_cut:
        response = module.Response(answer.status, stream=_cut(module, answer.body), **options)
    else:
        response = module.Response(answer.status, stream=module.ByteStream(answer.body), **options)
    response.elapsed = _AT_ONCE
    return response


@functools.lru_cache(maxsize=4)
def _recording(module: Any) -> type:
    class Recording(module.SyncByteStream):  # type: ignore[misc]
        """The body of an answer while it comes: recorded before its end is handed on."""

        def __init__(self, call: ModelCall, response: Any) -> None:
            self._call = call
            self._response = response
            self._inner = response.stream
            self._body = call.body()

        def __iter__(self) -> Iterator[bytes]:
            return handed_on(self._body, self._inner, self._commit)

        def close(self) -> None:
            if self._body.was_left():
                self._commit(is_cut=True)
            self._inner.close()

        def _commit(self, *, is_cut: bool = False) -> None:
            body, response = self._body, self._response
            self._call.commit(
                response.status_code, response.headers, body.whole, is_cut=is_cut, has_failed=body.has_failed
            )

    return Recording


@functools.lru_cache(maxsize=4)
def _recording_async(module: Any) -> type:
    class Recording(module.AsyncByteStream):  # type: ignore[misc]
        """The same for async clients."""

        def __init__(self, call: ModelCall, response: Any) -> None:
            self._call = call
            self._response = response
            self._inner = response.stream
            self._body = call.body()

        def __aiter__(self) -> AsyncIterator[bytes]:
            return handed_on_async(self._body, self._inner, self._commit)

        async def aclose(self) -> None:
            if self._body.was_left():
                await self._commit(is_cut=True)
            await self._inner.aclose()

        async def _commit(self, *, is_cut: bool = False) -> None:
            body, response = self._body, self._response
            await self._call.commit_async(
                response.status_code, response.headers, body.whole, is_cut=is_cut, has_failed=body.has_failed
            )

    return Recording


def _cut(module: Any, body: bytes) -> Any:
    class Cut(module.AsyncByteStream, module.SyncByteStream):  # type: ignore[misc]
        """A body that the script did not read to its end; there is no more of it."""

        def __iter__(self) -> Iterator[bytes]:
            yield body
            raise module.ReadError("The rest of this answer was not read, and not recorded.")

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield body
            raise module.ReadError("The rest of this answer was not read, and not recorded.")

    return Cut()
