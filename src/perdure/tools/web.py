"""`http_request`: a request whose key the server can honour, and the reading of what went wrong with it.

Nothing was sent (certain): the name was not found, the connection was refused or not made in time, TLS was not agreed.
Everything after the first byte (ambiguous): a timeout, a lost connection, an answer that cannot be read.

    answer          first attempt                             after an attempt that nobody knows the end of
    2xx, 3xx        done                                      done
    408, 425        not known: sent again under the key       the same
    other 4xx       refused, so it did not happen             not known: the answer is about this attempt alone
    5xx             not known: sent again under the key       the same

A 409 on the first attempt is the server's own conflict; later it may say that the earlier attempt is still at work.
A 429 refuses on the first attempt; later it only asks for patience.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from perdure.engine.effect import effect
from perdure.engine.scope import current_frame
from perdure.engine.step import step
from perdure.engine.values import current
from perdure.errors import UsageError
from perdure.policy import Retry

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

DEFAULT_TIMEOUT_SECONDS: Final = 30.0
DEFAULT_RESPONSE_BYTES: Final = 1024 * 1024
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS: Final = _SAFE | {"POST", "PUT", "PATCH", "DELETE"}
_UNSETTLED: Final = frozenset({408, 425})
_CLIENT_ERROR: Final = 400
_SERVER_ERROR: Final = 500
_SHOWN_CHARACTERS: Final = 300
_SCHEMES: Final = ("http", "https")


@dataclass(frozen=True, slots=True)
class Response:
    """What the server answered. Header names are in lower case; a repeated header is joined with commas."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_cut: bool = False

    @property
    def text(self) -> str:
        """The body as text; bytes that are none are replaced."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:  # noqa: ANN401 - a server may answer anything
        """The body, read as JSON; `ValueError` where it is none."""
        return msgspec.json.decode(self.body)


class RequestRefused(Exception):
    """The request was not carried out: it was never sent, or the server said no (then `status` is its answer)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return self.message


class RequestUnconfirmed(Exception):
    """The request was sent, and whether it was carried out is not known (`status` is 0 where no answer came)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return self.message


def http_request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    headers_from_env: Mapping[str, str] | None = None,
    json: Any = None,  # noqa: ANN401 - whatever JSON can hold
    data: str | bytes | None = None,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    keyed: bool = True,
    key_header: str = "Idempotency-Key",
    max_bytes: int = DEFAULT_RESPONSE_BYTES,
) -> Response:
    """Send an HTTP request and return the answer: status, headers, body.

    `json` or `data` is the body. `headers` are recorded with the call; a secret goes into `headers_from_env`, which
    names the environment variable that holds its value: {"Authorization": "API_TOKEN"}. `timeout` bounds the whole
    request, in seconds; `max_bytes` the body that is kept. Redirects are not followed.

    Guaranteed: GET, HEAD and OPTIONS are a step, attempted up to three times. Any other method is an effect with a key
    in `key_header`, the same for every attempt: a server that honours keys carries it out once. With `keyed=False`, for
    a server that does not, a request that may have been carried out is never sent again before a person has said so. An
    answer of 400 to 499 raises `RequestRefused`; a doubt that outlives four attempts under the key asks a person.

    Not guaranteed: anything about a server that ignores the key (use `keyed=False`), or forgets it within a day.
    """
    chosen = _checked_method(method)
    _check_url(url)
    _check_headers({**(headers or {}), **(headers_from_env or {})}, key_header)
    _check_limits(timeout, max_bytes)
    if json is not None and data is not None:
        raise _misused("json= and data= were both given.", "give one of them")
    if data is not None and not isinstance(data, (str, bytes)):
        raise _misused(f"data is a {type(data).__name__}.", "text or bytes; for anything else json=")
    send = _fetch if chosen in _SAFE else _send_keyed if keyed else _send_once
    return send(
        chosen,
        url,
        headers=dict(headers or {}),
        headers_from_env=dict(headers_from_env or {}),
        json=json,
        data=data,
        timeout=float(timeout),
        key_header=key_header if keyed and chosen not in _SAFE else "",
        max_bytes=max_bytes,
    )


def _request(
    method: str,
    url: str,
    *,
    headers: dict[str, str],
    headers_from_env: dict[str, str],
    json: Any,  # noqa: ANN401
    data: str | bytes | None,
    timeout: float,
    key_header: str,
    max_bytes: int,
) -> Response:
    sent = {**headers, **_from_environment(headers_from_env)}
    body = data.encode() if isinstance(data, str) else data
    if json is not None:
        body = msgspec.json.encode(json, order="deterministic")
        sent = {"Content-Type": "application/json", **sent}
    if key_header:
        sent[key_header] = current().key
    with _connected(url, timeout) as connection:
        response = _exchange(connection, method, url, body=body, headers=sent, timeout=timeout, max_bytes=max_bytes)
    return _judged(response, f"{method} {url}")


_FINAL: Final = (RequestRefused, UsageError)
_send_keyed = effect(name="http_request", keyed=True, certain=_FINAL, ambiguous=(RequestUnconfirmed,))(_request)
_send_once = effect(name="http_request", certain=_FINAL, ambiguous=(RequestUnconfirmed,))(_request)
_fetch = step(name="http_request", retry=Retry(attempts=3, on=(RequestUnconfirmed,)))(_request)


@contextlib.contextmanager
def _connected(url: str, timeout: float) -> Iterator[HTTPConnection]:
    """A connection on which nothing has been sent yet; whatever fails here proves that."""
    from http.client import HTTPConnection, HTTPSConnection

    parts = urlsplit(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=timeout)
    try:
        try:
            connection.connect()
        except OSError as error:  # refused, not found, too slow, TLS not agreed: all of them before the first byte
            raise _not_sent(url, error) from error
        yield connection
    finally:
        connection.close()


def _not_sent(url: str, error: OSError) -> Exception:
    parts = urlsplit(url)
    message = f"{parts.scheme}://{parts.netloc} could not be reached: {type(error).__name__}: {error}"
    if isinstance(error, socket.gaierror):
        message = f"the name {parts.hostname} was not found: {error}"
    return _unknown_before(message, status=0) or RequestRefused(0, message)


def _exchange(
    connection: HTTPConnection,
    method: str,
    url: str,
    *,
    body: bytes | None,
    headers: dict[str, str],
    timeout: float,
    max_bytes: int,
) -> Response:
    """Send, and read the answer; from here on a failure leaves open whether the request was carried out."""
    from http.client import HTTPException

    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with _deadline(connection, timeout) as expired:
        try:
            connection.request(method, path, body=body, headers=headers)
            with connection.getresponse() as answer:
                return _read(answer, max_bytes)
        except (OSError, HTTPException, ValueError) as error:
            is_late = expired.is_set() or isinstance(error, TimeoutError)
            why = f"no answer within {timeout:g} s" if is_late else f"{type(error).__name__}: {error}"
            raise RequestUnconfirmed(0, f"{method} {url} was sent, but its answer was lost: {why}") from error


@contextlib.contextmanager
def _deadline(connection: HTTPConnection, timeout: float) -> Iterator[threading.Event]:
    """Cut the connection when the time is up: a timeout on the socket would begin anew with every byte."""
    expired = threading.Event()

    def cut(sock: socket.socket) -> None:
        expired.set()
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(timeout, cut, (connection.sock,))
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()


def _read(answer: HTTPResponse, max_bytes: int) -> Response:
    from http.client import IncompleteRead

    body = answer.read(max_bytes + 1)
    if answer.length and len(body) <= max_bytes:
        raise IncompleteRead(body, answer.length)
    headers: dict[str, str] = {}
    for name, value in answer.getheaders():
        known = headers.get(name.lower())
        headers[name.lower()] = value if known is None else f"{known}, {value}"
    return Response(answer.status, headers, body[:max_bytes], is_cut=len(body) > max_bytes)


def _judged(response: Response, shown: str) -> Response:
    """The answer, where it says that the request was carried out."""
    status = response.status
    if status < _CLIENT_ERROR:
        return response
    message = f"{shown} was answered with {status}: {response.text[:_SHOWN_CHARACTERS]}"
    if status >= _SERVER_ERROR or status in _UNSETTLED:
        raise RequestUnconfirmed(status, message)
    raise _unknown_before(message, status=status) or RequestRefused(status, message)


def _unknown_before(message: str, *, status: int) -> RequestUnconfirmed | None:
    """A refusal is about this attempt alone: an earlier one of unknown end may have been carried out all the same."""
    frame = current_frame()
    if frame is None or frame.active is None or not frame.effect_key:
        return None
    entry = frame.active.journal.entries.get(frame.step_key)
    forgiven = entry.forgiven if entry is not None else 0
    if frame.attempt - forgiven <= 1:
        return None
    return RequestUnconfirmed(status, f"{message} (an earlier attempt may have been carried out)")


def _from_environment(names: dict[str, str]) -> dict[str, str]:
    missing = sorted(name for name in names.values() if name not in os.environ)
    if missing:
        raise _misused(
            f"headers_from_env names {', '.join(missing)}, which the environment does not have.",
            f"export {missing[0]}=…",
        )
    return {header: os.environ[name] for header, name in names.items()}


def _checked_method(method: object) -> str:
    if not isinstance(method, str) or method.upper() not in _METHODS:
        raise _misused(f"method={method!r}.", f"one of {', '.join(sorted(_METHODS))}")
    return method.upper()


def _check_url(url: object) -> None:
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise _misused(f"url={url!r} is not a URL.", "https://host/path, with anything unusual percent-encoded")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise _misused(f"url={url!r} is not an http or https URL.", "https://host/path")
    if parts.username is not None or parts.password is not None:
        raise _misused(f"the URL of {parts.hostname} holds a password.", "headers_from_env={'Authorization': 'NAME'}")


def _check_headers(headers: dict[str, str], key_header: str) -> None:
    for name, value in headers.items():
        texts = isinstance(name, str) and isinstance(value, str)
        if not texts or not _is_header(name, value):
            raise _misused(f"the header {name!r} cannot be sent.", "names and values are printable text")
        if name.lower() == str(key_header).lower():
            raise _misused(f"the header {name} is set by perdure.", "leave it out, or choose another key_header")
    if not isinstance(key_header, str) or not _is_header(key_header, ""):
        raise _misused(f"key_header={key_header!r}.", "the name of a header")


def _is_header(name: str, value: str) -> bool:
    token = name.replace("-", "").replace("_", "")
    return token.isascii() and token.isalnum() and value.isprintable() and value.isascii()


def _check_limits(timeout: object, max_bytes: object) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= threading.TIMEOUT_MAX:
        raise _misused(f"timeout={timeout!r}.", "seconds above 0")
    if type(max_bytes) is not int or max_bytes < 0:
        raise _misused(f"max_bytes={max_bytes!r}.", "a number of bytes")


def _misused(what: str, hint: str) -> UsageError:
    return UsageError(f"http_request: {what}", safe="nothing was sent.", hint=hint)
