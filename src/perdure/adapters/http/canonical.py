"""What a request asks, exact to the letter: the digest by which its recorded answer is found.

The digest covers the method, the address without secrets, every field of the body but the volatile ones, and the
conversation message by message, each linked to those before it: equal requests have equal digests however their
JSON is laid out, and no others have. Nothing is matched by likeness.

A conversation grows at its end. What the reader knows of the requests before, it does not read again: a request costs
what is new in it.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from perdure.adapters.http.endpoints import Dialect, model_in, streams
from perdure.adapters.http.growing import Growing
from perdure.adapters.http.layout import Layout, after, grown, laid_out, list_begins, shared_items, start_of
from perdure.adapters.http.redact import clean_url

REMEMBERED: Final = 8
"""How many conversations a reader remembers: as many agents may take turns."""

VOLATILE: Final = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "user"})
"""Fields that differ from process to process and do not reach the model."""

_CONVERSATIONS: Final = {
    Dialect.OPENAI_CHAT: "messages",
    Dialect.OPENAI_RESPONSES: "input",
    Dialect.ANTHROPIC: "messages",
    Dialect.GEMINI: "contents",
    Dialect.BEDROCK: "messages",
    Dialect.BEDROCK_INVOKE: "messages",
}
_NEEDED: Final[dict[Dialect, tuple[tuple[str, ...], ...]]] = {
    Dialect.OPENAI_CHAT: (("messages",),),
    Dialect.OPENAI_RESPONSES: (("model", "prompt"), ("input", "prompt", "previous_response_id", "conversation")),
    Dialect.OPENAI_COMPLETIONS: (("prompt",),),
    Dialect.ANTHROPIC: (("messages",), ("max_tokens",), ("model", "anthropic_version")),
    Dialect.GEMINI: (("contents",),),
    Dialect.BEDROCK: (("messages",),),
    Dialect.EMBEDDINGS: (("input", "content", "requests"),),
    Dialect.MEDIA: (("prompt", "input"),),
}
"""Of each group a body of that dialect has at least one field."""

_NAMES: Final = frozenset(name for groups in _NEEDED.values() for group in groups for name in group)
_SPOKEN: Final = ("content", "text", "parts", "output", "input", "prompt")
"""The fields in which a message has its text."""

_ABOUT_CHARACTERS: Final = 60
_READ_CHARACTERS: Final = 600
"""Of a long text no more is looked at to tell what it is about."""

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_fields: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_items: Final = msgspec.json.Decoder(list[Raw]).decode
_value: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Asked(Struct, frozen=True):
    """A request to a model, read."""

    dialect: Dialect
    method: str
    url: str
    """Without secrets."""
    digest: bytes
    model: str
    is_stream: bool
    """Whether the answer is asked for as a stream."""
    fits: bool
    """Whether the body has what a body of this dialect must have. One that has not is somebody else's request."""
    messages: Growing[Raw]
    """The conversation, as it was sent; empty where the dialect has none."""
    rest: bytes
    """The other fields in canonical JSON, without the volatile ones. Of a body that is no JSON object: the body."""
    marks: Growing[bytes]
    """The digest of each message."""
    links: Growing[bytes]
    """The digest of each message and all before it: equal links, equal conversations up to there."""
    known: int = 0
    """How many of the messages an earlier request had, too."""
    is_opaque: bool = False
    """Whether the body is no JSON object, and `rest` is all of it."""

    @property
    def conversation(self) -> str:
        """The name of the field that holds the messages; empty for none."""
        return _CONVERSATIONS.get(self.dialect, "")

    @property
    def about(self) -> str:
        """What is asked, in a few words: the end of the conversation, cut short."""
        last = bytes(self.messages[-1]) if self.messages else self.rest
        return shortened(text_in(last))

    @property
    def fields(self) -> dict[str, Raw]:
        """The other fields by name; none of a body that is no JSON object."""
        return fields_in(self.rest)


class _Around(Struct, frozen=True):
    """What a request says beside its conversation."""

    dialect: Dialect
    method: str
    url: str
    rest: bytes
    model: str
    is_stream: bool
    fits: bool
    begun: Any
    """The digest of all this, to go on from."""

    def asked(self, messages: Growing[Raw], marks: Growing[bytes], links: Growing[bytes], known: int = 0) -> Asked:
        """The request with this conversation."""
        digest = self.begun.copy()
        _hash(digest, links[-1] if links else b"")
        return Asked(
            dialect=self.dialect,
            method=self.method,
            url=self.url,
            digest=digest.digest(),
            model=self.model,
            is_stream=self.is_stream,
            fits=self.fits,
            messages=messages,
            rest=self.rest,
            marks=marks,
            links=links,
            known=known,
        )


class _Seen(Struct, frozen=True):
    """What is remembered of a request whose conversation may go on."""

    asked: Asked
    layout: Layout
    around: _Around
    head: bytes
    """What stood in front of the messages."""
    tail: bytes
    """What stood behind them, from the bracket on."""


class Reader:
    """Reads the requests of a run; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: tuple[_Seen, ...] = ()

    def read(self, dialect: Dialect, method: str, url: str, body: bytes) -> Asked:
        """What this request asks."""
        address = (dialect, method.upper(), clean_url(url))
        known = _known(dialect, body, self._seen)
        try:
            asked, seen = _read_on(address, body, known) or _read(address, url, body, known)
        except _UNREADABLE:
            return _opaque(address, url, body)
        if seen is not None:
            self._remember(seen, known.before if known is not None and asked.known else None)
        return asked

    def _remember(self, seen: _Seen, before: _Seen | None) -> None:
        """A conversation that went on takes the place of what it was."""
        with self._lock:
            others = [each for each in self._seen if each is not before or _goes_on_elsewhere(before, seen)]
            self._seen = (seen, *others)[:REMEMBERED]


Address = tuple[Dialect, str, str]
_MOST_TRANSIENT: Final = 2
"""So many messages at the end of a request may be for this request only, and the conversation still be the same."""


def _goes_on_elsewhere(before: _Seen, seen: _Seen) -> bool:
    """Whether two conversations have a beginning in common, and both may go on."""
    return seen.asked.known < len(before.layout.ends) - _MOST_TRANSIENT


class _Known(Struct, frozen=True):
    """The messages of a body that need not be read."""

    before: _Seen
    """The request that had them."""
    shared: int
    """How many they are."""
    start: int
    """Where they begin."""
    end: int
    """Where the next one may begin, or the bracket that closes."""


def _known(dialect: Dialect, body: bytes, earlier: tuple[_Seen, ...]) -> _Known | None:
    """The messages with which the conversation of an earlier request begins, too; None for none."""
    start = list_begins(body, _CONVERSATIONS[dialect]) if earlier and dialect in _CONVERSATIONS else None
    if start is None:
        return None
    before, shared = _longest(dialect, body, start, earlier)
    if before is None:
        return None
    return _Known(before, shared, start, after(body, start + before.layout.ends[shared - 1]))


def _read_on(address: Address, body: bytes, known: _Known | None) -> tuple[Asked, _Seen] | None:
    """The request, and what to remember of it, where it is an earlier one with new messages: only these are read.

    Where one list takes the place of another, what stands around it means what it meant.
    """
    if known is None:
        return None
    before = known.before
    around, bracket = before.around, len(body) - len(before.tail)
    is_the_same_around = (
        address == (around.dialect, around.method, around.url)
        and known.start == len(before.head)
        and known.end <= bracket
        and body.startswith(before.head)
        and body.endswith(before.tail)
    )
    if not is_the_same_around:
        return None
    array = b"[%b]" % body[known.end : bracket]
    try:
        new = _items(array)
    except _UNREADABLE:
        return None
    asked = _made(around, new, known)
    layout = grown(before.layout, known.shared, body, known.start, new)
    return asked, _Seen(asked, layout, around, before.head, before.tail)


def _read(address: Address, url: str, body: bytes, known: _Known | None) -> tuple[Asked, _Seen | None]:
    """The request, and what to remember of it."""
    text = body if known is None else body[: known.start] + body[known.end :]
    fields = _fields(text)
    name = _CONVERSATIONS.get(address[0], "")
    array = bytes(fields.get(name, b""))
    name = name if array.startswith(b"[") else ""
    start = start_of(text, fields, name) if name else None
    if known is not None and known.start != start:
        return _read(address, url, body, None)  # what was left out is not where the conversation stands
    new = _items(array) if name else []
    around = _around(address, url, fields, name)
    asked = _made(around, new, known)
    if start is None or not asked.messages:
        return asked, None
    layout = laid_out(body, start, new) if known is None else grown(known.before.layout, known.shared, body, start, new)
    bracket = start + len(body) - len(text) + len(array) - 2
    return asked, _Seen(asked, layout, around, body[:start], body[bracket:])


def _around(address: Address, url: str, fields: dict[str, Raw], name: str) -> _Around:
    dialect, method, shown = address
    values = {each: _value(raw) for each, raw in fields.items() if each != name and each not in VOLATILE}
    rest = _encode(values)
    return _Around(
        dialect=dialect,
        method=method,
        url=shown,
        rest=rest,
        model=_model(values, url),
        is_stream=values.get("stream") is True or streams(url),
        fits=_fits(dialect, {*values, name}),
        begun=_hash(hashlib.sha256(), method.encode(), shown.encode(), name.encode(), rest),
    )


def _made(around: _Around, new: list[Raw], known: _Known | None) -> Asked:
    marks = [hashlib.sha256(canonical(raw)).digest() for raw in new]
    if known is None:
        return around.asked(Growing(new), Growing(marks), Growing(_links(b"", marks)))
    old, shared = known.before.asked, known.shared
    links = _links(old.links[shared - 1], marks)
    return around.asked(
        old.messages.grown(shared, new), old.marks.grown(shared, marks), old.links.grown(shared, links), shared
    )


def canonical(raw: bytes | Raw) -> bytes:
    """One text for equal JSON values."""
    return _encode(_value(raw))


def fields_in(rest: bytes) -> dict[str, Raw]:
    """The fields of a JSON object; none of anything else."""
    try:
        return _fields(rest)
    except _UNREADABLE:
        return {}


def text_in(message: bytes | Raw) -> str:
    """What a message says to a person: the texts in it, or the message itself where there are none."""
    try:
        value = _value(message)
    except _UNREADABLE:
        return bytes(message).decode(errors="replace")
    return " ".join(_texts(value)) or _encode(value).decode()


def shortened(text: str, most: int = _ABOUT_CHARACTERS) -> str:
    """One line of a text."""
    words = " ".join(text[:_READ_CHARACTERS].split())
    return words if len(words) <= most and len(text) <= _READ_CHARACTERS else words[: most - 1] + "…"


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    if isinstance(value, dict):
        return [text for name in _SPOKEN if value.get(name) for text in _texts(value[name])]
    return []


def _opaque(address: Address, url: str, body: bytes) -> Asked:
    """A body that is no JSON object is known by its bytes."""
    dialect, method, shown = address
    return Asked(
        dialect=dialect,
        method=method,
        url=shown,
        digest=_hash(hashlib.sha256(), method.encode(), shown.encode(), b"?", body, b"").digest(),
        model=model_in(url),
        is_stream=streams(url),
        fits=_fits(dialect, {name for name in _NAMES if b'"%s"' % name.encode() in body}),
        messages=Growing([]),
        rest=body,
        marks=Growing([]),
        links=Growing([]),
        is_opaque=True,
    )


def _hash(made: Any, *parts: bytes) -> Any:
    """The digest with these parts added, each with its length in front."""
    for part in parts:
        made.update(b"%d:%b" % (len(part), part))
    return made


def _links(link: bytes, marks: list[bytes]) -> list[bytes]:
    made = []
    for mark in marks:
        link = hashlib.sha256(link + mark).digest()
        made.append(link)
    return made


def _model(values: dict[str, Any], url: str) -> str:
    named = values.get("model")
    return named if isinstance(named, str) and named else model_in(url)


def _fits(dialect: Dialect, names: set[str]) -> bool:
    return all(not names.isdisjoint(group) for group in _NEEDED.get(dialect, ()))


def _longest(dialect: Dialect, body: bytes, start: int, earlier: tuple[_Seen, ...]) -> tuple[_Seen | None, int]:
    """The remembered request that shares the most messages with this body, and how many."""
    best, most = None, 0
    for seen in earlier:
        if seen.asked.dialect is not dialect:
            continue
        shared = shared_items(body, start, seen.layout)
        if shared > most:
            best, most = seen, shared
        if shared == len(seen.layout.ends):
            break
    return best, most
