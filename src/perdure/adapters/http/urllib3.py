"""Model calls made by urllib3, and by what sends through it: requests, and Amazon's client (botocore)."""

from __future__ import annotations

import functools
import http.client
import io
from typing import TYPE_CHECKING, Any, Final

from perdure.adapters.http.botocore import sent_headers, signature_in, storable
from perdure.adapters.http.chunked import CHUNKED, chunked_answer
from perdure.adapters.http.dropped import note_closed, note_dropped, note_open, record_dropped
from perdure.adapters.http.exchange import routed
from perdure.adapters.http.liveness import events_of, is_live, without_framing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from perdure.adapters.http.exchange import ModelCall
    from perdure.adapters.http.record import Answer

_PORTS: Final = {"http": 80, "https": 443}
_MOST_AT_ONCE: Final = 65_536
_SOME: Final = 512
_VERSION: Final = 11


def patch(module: ModuleType) -> None:
    """Have the pools of urllib3 send model calls through the journal."""
    pool = module.HTTPConnectionPool
    pool.urlopen = _urlopen(module, pool.urlopen)


def _urlopen(module: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def urlopen(
        self: Any, method: str, url: str, body: Any = None, headers: Any = None, *args: Any, **options: Any
    ) -> Any:
        route = routed(method, _address(self, url))
        if route is None:
            return original(self, method, url, body, headers, *args, **options)
        record_dropped(route)
        body, content = _read(body)
        sent = self.headers if headers is None else headers
        call = route.begun(sent_headers(sent), content)
        if call is None:
            return original(self, method, url, body, headers, *args, **options)
        wish = _Wish(module, options, url)
        if call.answer is not None:
            return wish.replayed(call.answer)
        with call.sending():
            response = original(self, method, url, body, headers, *args, **{**options, **wish.sent})
        return wish.received(_Recorder(call, signature_in(sent)), response)

    return urlopen


class _Wish:
    """How whoever sends the request wants to have the answer."""

    def __init__(self, module: Any, options: Mapping[str, Any], url: str) -> None:
        self._module = module
        self._url = url
        self._preloads = options.get("preload_content", True)
        self._decodes = options.get("decode_content", True)
        self._has_own = self._preloads and self._decodes
        self.sent = {} if self._has_own else {"preload_content": False}
        """What is wished of the library instead: what is recorded must be readable."""

    def received(self, recorder: _Recorder, response: Any) -> Any:
        """What came back, on its way to the script."""
        if self._has_own:
            recorder.commit(response, response.data or b"")
            return response
        if not self._preloads and is_live(response.status, response.headers.get("content-type")):
            return _recorded(self._module)(recorder, response)
        try:
            body = response.read(decode_content=True)
        except self._module.exceptions.HTTPError as error:
            return self._broken(response, error)
        recorder.commit(response, body)
        made = self._whole(response.status, response.reason, response.headers, body)
        made._original_response = response._original_response  # noqa: SLF001 - requests finds the cookies there
        return made

    def replayed(self, answer: Answer) -> Any:
        """A response as the library would have made it."""
        reason = http.client.responses.get(answer.status, "")
        if self._preloads or not is_live(answer.status, _content_type(answer.headers)):
            return self._whole(answer.status, reason, answer.headers, answer.body)
        chunks = self._cut(answer.body) if answer.is_cut else events_of(answer.body)
        read = chunked_answer(answer.status, reason, answer.headers.items(), chunks)
        return self._made(read, read.getheaders(), answer.status, reason, original_response=read)

    def _whole(self, status: int, reason: str, headers: Mapping[str, str], body: bytes) -> Any:
        shown = [*without_framing(headers), ("Content-Length", str(len(body)))]
        return self._made(io.BytesIO(body), shown, status, reason)

    def _broken(self, response: Any, error: Exception) -> Any:
        """An answer that broke on its way: whoever reads it has the error then, as without us."""
        if self._preloads:
            raise error
        headers = without_framing(response.headers)
        read = chunked_answer(response.status, response.reason or "", headers, _raising(error))
        return self._made(read, [*headers, CHUNKED], response.status, response.reason, original_response=read)

    def _made(self, body: Any, headers: list[tuple[str, str]], status: int, reason: str, **options: Any) -> Any:
        response = self._module.HTTPResponse(
            body=body,
            headers=self._module.response.HTTPHeaderDict(headers),
            status=status,
            version=_VERSION,
            reason=reason,
            preload_content=self._preloads,
            decode_content=self._decodes,
            request_method="POST",
            request_url=self._url,
            **options,
        )
        response.version_string = "HTTP/1.1"
        return response

    def _cut(self, body: bytes) -> Iterator[bytes]:
        yield from events_of(body)
        rest = self._module.exceptions.ProtocolError("The rest of this answer was not read, and not recorded.")
        yield from _raising(rest)


class _Recorder:
    """Records one answer, and gathers it first where it is streamed."""

    def __init__(self, call: ModelCall, signature: bytes) -> None:
        self._call = call
        self._signature = signature
        self._body = call.body()
        self._live: Any = None
        self._is_over = False

    def commit(self, response: Any, body: bytes, **how: bool) -> None:
        """Record the answer as far as it may be stored."""
        note_closed(self._call)
        if self._signature:
            body = storable(body, self._call.conduct.redactor, signature=self._signature)
        self._call.commit(response.status, response.headers, body, **how)

    def chunks(self, live: Any) -> Iterator[bytes]:
        """The body as it comes, recorded before its end is handed on."""
        self._live = live
        body = self._body
        note_open(self._call)
        try:
            with body:
                for chunk in _pieces(live):
                    if body.take(chunk):
                        self._commit_stream()
                    yield from body.ready()
                if body.end():
                    self._commit_stream()
                self._is_over = True
                yield from body.ready()
        finally:
            note_closed(self._call)

    def leave(self) -> None:
        """The script reads no further: what it has read is all there is."""
        if self._body.was_left():
            self._commit_stream(is_cut=True)

    def drop(self) -> None:
        """The same, where nobody said so."""
        if self._body.was_left():
            note_dropped(functools.partial(self._commit_stream, is_cut=True))

    def release(self, live: Any) -> None:
        """Give the connection back; one with something left to read is closed first."""
        if not self._is_over:
            live.close()
        live.release_conn()

    def _commit_stream(self, *, is_cut: bool = False) -> None:
        body = self._body
        self.commit(self._live, body.whole, is_cut=is_cut, has_failed=body.has_failed)


@functools.lru_cache(maxsize=1)
def _recorded(module: Any) -> type:
    class Recorded(module.HTTPResponse):  # type: ignore[misc]
        """A streamed answer as the script has it: it reads the live one behind the recorder."""

        def __init__(self, recorder: _Recorder, live: Any) -> None:
            self._recorder = recorder
            self._live = live
            headers = without_framing(live.headers)
            read = chunked_answer(live.status, live.reason or "", headers, recorder.chunks(live))
            super().__init__(
                body=read,
                headers=module.response.HTTPHeaderDict([*headers, CHUNKED]),
                status=live.status,
                version=live.version,
                reason=live.reason,
                preload_content=False,
                decode_content=live.decode_content,
                original_response=read,
                msg=read.msg,
                retries=live.retries,
                request_method="POST",
                request_url=live.url,
            )
            self.version_string = getattr(live, "version_string", "")

        def release_conn(self) -> None:
            self._recorder.release(self._live)

        def close(self) -> None:
            self._recorder.leave()
            super().close()
            self._live.close()

        def __del__(self) -> None:
            self._recorder.drop()
            super().__del__()

    return Recorded


def _raising(error: Exception) -> Iterator[bytes]:
    yield b""
    raise error


def _pieces(live: Any) -> Iterator[bytes]:
    """The body, unpacked, as soon as anything of it is there."""
    if not hasattr(live, "read1"):  # before urllib3 2.1
        yield from live.stream(_SOME, decode_content=True)
        return
    while piece := live.read1(_MOST_AT_ONCE, decode_content=True):
        yield piece


def _address(pool: Any, url: str) -> str:
    """The whole address: a pool knows its host, and is given the rest; through a proxy it is given everything."""
    if not url.startswith("/"):
        return url
    host = f"[{pool.host}]" if ":" in pool.host else pool.host
    port = f":{pool.port}" if pool.port and pool.port != _PORTS.get(pool.scheme) else ""
    return f"{pool.scheme}://{host}{port}{url}"


def _read(body: Any) -> tuple[Any, bytes]:
    """The body of a request, to be sent and to be read; what can be read only once is read here."""
    if body is None:
        return None, b""
    if isinstance(body, str):
        return body, body.encode()
    if isinstance(body, (bytes, bytearray, memoryview)):
        return body, bytes(body)
    pieces = [body.read()] if hasattr(body, "read") else body
    content = b"".join(piece.encode() if isinstance(piece, str) else bytes(piece) for piece in pieces)
    return content, content


def _content_type(headers: Mapping[str, str]) -> str:
    return next((value for name, value in headers.items() if name.lower() == "content-type"), "")
