"""Looking at an address: its status, and its ETag, its date or its body."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from perdure.resources.kinds import Fingerprint, Resource

if TYPE_CHECKING:
    from email.message import Message

BODY_BYTES: Final = 64 * 1024 * 1024
_GONE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_NO_HEAD: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED})
_CHUNK: Final = 1024 * 1024
_SHOWN_CHARACTERS: Final = 80


def look_url(resource: Resource, *, timeout: float) -> Fingerprint:
    """What the address answers now."""
    method = resource.options.get("method", "HEAD")
    status, headers, digest = _asked(resource.identity, method, timeout)
    if method == "HEAD" and (status in _NO_HEAD or (status < HTTPStatus.MULTIPLE_CHOICES and not _mark(headers))):
        status, headers, digest = _asked(resource.identity, "GET", timeout)
    if status in _GONE:
        return Fingerprint("absent", words=_status_words(status))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
        return Fingerprint("unreachable", words=f"it answers {_status_words(status)}")
    mark = _mark(headers) or digest
    seen = hashlib.sha256(f"{status}\n{mark}".encode()).hexdigest()
    words = ", ".join(filter(None, (_status_words(status), mark[:_SHOWN_CHARACTERS])))
    return Fingerprint("present", seen, words)


def _asked(address: str, method: str, timeout: float) -> tuple[int, Message, str]:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    request = Request(address, method=method, headers={"User-Agent": "perdure", "Cache-Control": "no-cache"})  # noqa: S310 - http or https, see kinds.url
    try:
        with urlopen(request, timeout=timeout) as answer:  # noqa: S310
            body = "" if method == "HEAD" or _mark(answer.headers) else _digest_of(answer)
            return answer.status, answer.headers, body
    except HTTPError as error:
        with error:
            return error.code, error.headers, ""


def _mark(headers: Message) -> str:
    """The header that changes with the content; a weak ETag and a strong one are the same mark."""
    tag = headers.get("ETag")
    if tag:
        return f"ETag {tag.removeprefix('W/')}"
    modified = headers.get("Last-Modified")
    return f"modified {modified}" if modified else ""


def _digest_of(answer: Any) -> str:  # noqa: ANN401 - whatever urlopen gives
    digest, size = hashlib.sha256(), 0
    while chunk := answer.read(_CHUNK):
        size += len(chunk)
        if size > BODY_BYTES:
            raise ValueError(f"its body is larger than {BODY_BYTES:,} bytes")
        digest.update(chunk)
    return f"{size:,} bytes, digest {digest.hexdigest()[:16]}"


def _status_words(status: int) -> str:
    try:
        return f"{int(status)} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
