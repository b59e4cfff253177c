"""What is particular to Amazon's client: how it signs a request, and the frames in which it reads a stream.

It sends by a pool of urllib3, so that the hook on urllib3 has its requests. Its signature is good for one request: it
is neither stored nor remembered. A frame has checksums: what is taken out of one is taken out before they are made.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.adapters.http.frames import is_framed
from perdure.adapters.http.redact import REDACTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from perdure.adapters.http.redact import Redactor

_SIGNED: Final = "AWS4-"
_CREDENTIAL: Final = re.compile(r"Credential=([^/,\s]+)")
_SIGNATURE: Final = re.compile(r"Signature=([0-9a-fA-F]{16,})")
_PRELUDE: Final = struct.Struct(">II")
_NUMBER: Final = struct.Struct(">I")
_ENVELOPE: Final = "bytes"


def sent_headers(headers: Mapping[Any, Any]) -> dict[str, str]:
    """The headers of a request as text; of a signature only whose it is."""
    given = {_text(name): _text(value) for name, value in headers.items()}
    return {name: _signer(value) if value.startswith(_SIGNED) else value for name, value in given.items()}


def signature_in(headers: Mapping[Any, Any]) -> bytes:
    """The signature of a request; empty where it has none."""
    found = (_SIGNATURE.search(_text(value)) for value in headers.values() if _text(value).startswith(_SIGNED))
    return next((each[1].encode() for each in found if each is not None), b"")


def storable(body: bytes, redactor: Redactor, *, signature: bytes) -> bytes:
    """What may be stored of an answer to Amazon's client: without its signature, and with frames that are sound."""

    def clean(given: bytes) -> bytes:
        return redactor.text(given.replace(signature, REDACTED.encode()) if signature else given)

    return b"".join(_cleaned_frames(body, clean)) if is_framed(body) else clean(body)


def _cleaned_frames(body: bytes, clean: Callable[[bytes], bytes]) -> Iterator[bytes]:
    at = 0
    while is_framed(body[at:]):
        size, headers_size = _PRELUDE.unpack_from(body, at)
        headers_at = at + _PRELUDE.size + _NUMBER.size
        payload_at = headers_at + headers_size
        payload = body[payload_at : at + size - _NUMBER.size]
        done = _cleaned_payload(payload, clean)
        yield body[at : at + size] if done == payload else _frame(body[headers_at:payload_at], done)
        at += size
    yield clean(body[at:])


def _cleaned_payload(payload: bytes, clean: Callable[[bytes], bytes]) -> bytes:
    """A payload may be the words of a model's maker in an envelope, in letters in which no secret is recognised."""
    try:
        fields = msgspec.json.decode(payload, type=dict[str, Any])
        inner = base64.b64decode(fields[_ENVELOPE])
    except (msgspec.MsgspecError, UnicodeError, KeyError, TypeError, binascii.Error):
        return clean(payload)
    done = clean(inner)
    if done == inner:
        return clean(payload)
    return clean(msgspec.json.encode(fields | {_ENVELOPE: base64.b64encode(done).decode()}))


def _frame(headers: bytes, payload: bytes) -> bytes:
    sizes = _PRELUDE.pack(_PRELUDE.size + 2 * _NUMBER.size + len(headers) + len(payload), len(headers))
    frame = sizes + _NUMBER.pack(zlib.crc32(sizes)) + headers + payload
    return frame + _NUMBER.pack(zlib.crc32(frame))


def _signer(value: str) -> str:
    found = _CREDENTIAL.search(value)
    return found[1] if found is not None else ""


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
