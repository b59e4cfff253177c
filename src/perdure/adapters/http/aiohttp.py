"""Model calls made by aiohttp, streamed and not."""

from __future__ import annotations

import functools
import http.client
import inspect
from collections.abc import AsyncIterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from perdure.adapters.http.aiohttp_body import filled, plain, record
from perdure.adapters.http.dropped import record_dropped
from perdure.adapters.http.exchange import routed
from perdure.adapters.http.liveness import events_of, is_live, without_framing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import ModuleType

    from perdure.adapters.http.exchange import ModelCall, Route
    from perdure.adapters.http.record import Answer

_BUFFER_BYTES: Final = 2**16


def patch(module: ModuleType) -> None:
    """Have the sessions of aiohttp send model calls through the journal."""
    session = module.ClientSession
    session._request = _request(module, session._request)  # noqa: SLF001 - every way to send leads there


def _request(module: Any, original: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(original)
    async def request(self: Any, method: str, str_or_url: Any, **options: Any) -> Any:
        route = _routed(self, method, str_or_url, options)
        content = None if route is None else await _content(self, options)
        if route is None or content is None:
            return await original(self, method, str_or_url, **options)
        record_dropped(route)
        asking = _Asking(module, self, route, options)
        call = route.begun(asking.credentials(), content)
        if call is None:
            return await original(self, method, str_or_url, **options)
        if call.answer is not None:
            await call.wait_if_given_up()
            response = asking.replayed(call.answer)
        else:
            with call.sending():
                response = await original(self, method, str_or_url, **{**options, **asking.sent})
            await asking.received(call, response)
        await asking.heed_status(response)
        return response

    return request


class _Asking:
    """One request of a session, and how whoever sends it wants to have the answer."""

    def __init__(self, module: Any, session: Any, route: Route, options: dict[str, Any]) -> None:
        self._module = module
        self._session = session
        self._route = route
        self._options = options
        self.headers = session._prepare_headers(options.get("headers"))  # noqa: SLF001 - those of the session, too
        decodes = options.get("auto_decompress")
        self._decodes = session._auto_decompress if decodes is None else decodes  # noqa: SLF001
        self.sent = {"raise_for_status": False} | ({} if self._decodes else {"auto_decompress": True})
        """What is wished of the library instead: an error must be recorded, and what is recorded be readable."""

    def credentials(self) -> dict[str, str]:
        """What the request carries, also what the library puts into its headers only when it sends it."""
        auth = self._options.get("auth") or self._session._default_auth  # noqa: SLF001
        return plain(self.headers) | ({"Authorization": auth.encode()} if auth else {})

    async def received(self, call: ModelCall, response: Any) -> None:
        """What came back, on its way to the script."""
        if not self._decodes:
            _set_headers(response, without_framing(response.headers))
        if is_live(response.status, response.headers.get("Content-Type")):
            record(self._module, response, call)
            return
        limit, _ = response.content.get_read_buffer_limits()
        body = await response.read()
        await call.commit_async(response.status, plain(response.headers), body)
        response._body = None  # noqa: SLF001 - it is read again, by whoever asked
        response.content = filled(self._module, response._loop, [body], limit=limit)  # noqa: SLF001

    def replayed(self, answer: Answer) -> Any:
        """A response as the library would have made it."""
        loop = self._session._loop  # noqa: SLF001
        is_chunked = is_live(answer.status, _content_type(answer))
        packed = ("Transfer-Encoding", "chunked") if is_chunked else ("Content-Length", str(len(answer.body)))
        pieces = events_of(answer.body) if is_chunked else [answer.body]
        response = self._empty(loop)
        response.version, response.status = self._module.HttpVersion11, answer.status
        response.reason = http.client.responses.get(answer.status, "")
        _set_headers(response, [*answer.headers.items(), packed])
        how = {"limit": self._limit(), "is_chunked": is_chunked, "is_cut": answer.is_cut}
        response.content = filled(self._module, loop, pieces, **how)
        return response

    async def heed_status(self, response: Any) -> None:
        """Raise where whoever asked wants an error to be raised."""
        wish = self._options.get("raise_for_status")
        wish = self._session._raise_for_status if wish is None else wish  # noqa: SLF001
        try:
            if callable(wish):
                await wish(response)
            elif wish:
                response.raise_for_status()
        except BaseException:
            response.close()
            raise

    def _empty(self, loop: Any) -> Any:
        module, route = self._module, self._route
        url = _url(self._session, route.url)
        kind = self._session._response_class  # noqa: SLF001
        given = {
            "writer": None,
            "continue100": None,
            "timer": module.helpers.TimerNoop(),
            "request_info": module.RequestInfo(url.with_fragment(None), route.method, self.headers, url),
            "traces": [],
            "loop": loop,
            "session": self._session,
            "stream_writer": SimpleNamespace(output_size=0),
        }
        known = inspect.signature(kind.__init__).parameters  # they differ between versions
        return kind(route.method, url, **{name: value for name, value in given.items() if name in known})

    def _limit(self) -> int:
        """How many bytes a reader of this session holds; a line may have twice as many."""
        wish: int | None = self._options.get("read_bufsize")
        held: int = getattr(self._session, "_read_bufsize", _BUFFER_BYTES)
        return wish or held


def _routed(session: Any, method: str, address: Any, options: dict[str, Any]) -> Route | None:
    """How the request goes; one that the library itself refuses is left to it."""
    if session.closed:
        return None
    try:
        url = _url(session, address)
        params = options.get("params")
        return routed(method.upper(), str(url.update_query(params) if params else url))
    except (TypeError, ValueError, AssertionError):
        return None


def _url(session: Any, address: Any) -> Any:
    return session._build_url(address)  # noqa: SLF001 - it may be relative to the session's


async def _content(session: Any, options: dict[str, Any]) -> bytes | None:
    """The body of the request; what can be read only once is read here, and sent as it was read."""
    if options.get("json") is not None:
        return _bytes(session._json_serialize(options["json"]))  # noqa: SLF001
    data: Any = options.get("data")
    data = getattr(data, "_value", data)  # what the library itself makes of a body holds it there
    if isinstance(data, AsyncIterable):
        options["data"] = data = b"".join([_bytes(piece) async for piece in data])
    elif hasattr(data, "read"):
        options["data"] = data = data.read()
    if data is None or isinstance(data, (str, bytes, bytearray, memoryview)):
        return _bytes(data or b"")
    return None


def _bytes(given: Any) -> bytes:
    return given.encode() if isinstance(given, str) else bytes(given)


def _content_type(answer: Answer) -> str:
    return next((value for name, value in answer.headers.items() if name.lower() == "content-type"), "")


def _set_headers(response: Any, pairs: list[tuple[str, str]]) -> None:
    from multidict import CIMultiDict, CIMultiDictProxy

    response._headers = CIMultiDictProxy(CIMultiDict(pairs))  # noqa: SLF001
    response._raw_headers = tuple((name.encode(), value.encode()) for name, value in pairs)  # noqa: SLF001
    response._cache.pop("headers", None)  # noqa: SLF001 - both are kept when they are first asked for
    response._cache.pop("raw_headers", None)  # noqa: SLF001
