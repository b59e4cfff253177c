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
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from perdure.adapters.http.endpoints import Dialect, model_in, streams
from perdure.adapters.http.layout import Layout, after, ends_of, grown, list_begins, shared_items, start_of
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
_Item = TypeVar("_Item")
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
    messages: list[Raw]
    """The conversation, as it was sent; empty where the dialect has none."""
    rest: bytes
    """The other fields in canonical JSON, without the volatile ones. Of a body that is no JSON object: the body."""
    marks: list[bytes]
    """The digest of each message."""
    links: list[bytes]
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


class _Seen(Struct, frozen=True):
    """What is remembered of a request whose conversation may go on."""

    asked: Asked
    layout: Layout
    others: dict[str, bytes]
    """The other fields as they were sent."""


class Reader:
    """Reads the requests of a run; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[_Seen] = []

    def read(self, dialect: Dialect, method: str, url: str, body: bytes) -> Asked:
        """What this request asks."""
        with self._lock:
            earlier = tuple(self._seen)
        address = (dialect, method.upper(), clean_url(url))
        try:
            asked, seen, text = _read(address, url, body, earlier)
        except _UNREADABLE:
            return _opaque(address, url, body)
        if seen is not None:
            self._remember(seen, text.before)
        return asked

    def _remember(self, seen: _Seen, before: _Seen | None) -> None:
        """A conversation that went on takes the place of what it was."""
        with self._lock:
            others = [each for each in self._seen if each is not before or _goes_on_elsewhere(before, seen)]
            self._seen = [seen, *others][:REMEMBERED]


Address = tuple[Dialect, str, str]
_MOST_TRANSIENT: Final = 2
"""So many messages at the end of a request may be for this request only, and the conversation still be the same."""


def _goes_on_elsewhere(before: _Seen, seen: _Seen) -> bool:
    """Whether two conversations have a beginning in common, and both may go on."""
    return seen.asked.known < len(before.layout.ends) - _MOST_TRANSIENT


class _Text(Struct, frozen=True):
    """A body without the messages that are known already."""

    content: bytes
    start: int | None = None
    """Where messages were left out."""
    shared: int = 0
    """How many messages these were."""
    before: _Seen | None = None
    """The request that had them."""


def _read(address: Address, url: str, body: bytes, earlier: tuple[_Seen, ...]) -> tuple[Asked, _Seen | None, _Text]:
    """The request, what to remember of it, and what had to be read of it."""
    text = _unknown(address[0], body, earlier)
    fields = _fields(text.content)
    name = _CONVERSATIONS.get(address[0], "")
    array = bytes(fields.get(name, b""))
    name = name if array.startswith(b"[") else ""
    start = start_of(text.content, fields, name) if name else None
    if text.start not in (None, start):
        return _read(address, url, body, ())  # what was left out is not where the conversation stands
    new = _items(array) if name else []
    others = {each: bytes(raw) for each, raw in fields.items() if each != name and each not in VOLATILE}
    asked = _made(address, url, new, others, text, name=name)
    if start is None or not asked.messages:
        return asked, None, text
    layout = text.before.layout if text.before else Layout()
    known = layout.ends[text.shared - 1] if text.shared else 0
    cut = len(body) - len(text.content)
    ends = [end - 1 + cut for end in ends_of(array, 1, new)]
    return (
        asked,
        _Seen(asked, grown(layout, text.shared, body[start + known : start + cut + len(array)], ends), others),
        text,
    )


def _unknown(dialect: Dialect, body: bytes, earlier: tuple[_Seen, ...]) -> _Text:
    """What must be read: all but the messages with which the conversation of an earlier request begins, too."""
    start = list_begins(body, _CONVERSATIONS[dialect]) if earlier and dialect in _CONVERSATIONS else None
    if start is None:
        return _Text(body)
    before, shared = _longest(dialect, body, start, earlier)
    if before is None:
        return _Text(body)
    end = after(body, start + before.layout.ends[shared - 1])
    return _Text(body[:start] + body[end:], start, shared, before)


def _made(address: Address, url: str, new: list[Raw], others: dict[str, bytes], text: _Text, *, name: str) -> Asked:
    dialect, method, shown = address
    before, shared = text.before, text.shared
    old = before.asked if before is not None else None
    marks = [hashlib.sha256(canonical(raw)).digest() for raw in new]
    links = _links(old.links[shared - 1] if old is not None else b"", marks)
    if before is not None and before.others == others and before.asked.url == shown:
        rest, model, is_stream = before.asked.rest, before.asked.model, before.asked.is_stream
    else:
        values = {each: _value(raw) for each, raw in others.items()}
        rest, model, is_stream = _encode(values), _model(values, url), values.get("stream") is True or streams(url)
    if old is not None:
        new = _grown(old.messages, shared, new)
        marks, links = _grown(old.marks, shared, marks), _grown(old.links, shared, links)
    return Asked(
        dialect=dialect,
        method=method,
        url=shown,
        digest=_digest(method, shown, name, rest, links[-1] if links else b""),
        model=model,
        is_stream=is_stream,
        fits=_fits(dialect, {*others, name}),
        messages=new,
        rest=rest,
        marks=marks,
        links=links,
        known=shared,
    )


def _grown(old: list[_Item], shared: int, new: list[_Item]) -> list[_Item]:
    made = old[:shared]
    made += new
    return made


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
        digest=_digest(method, shown, "?", body, b""),
        model=model_in(url),
        is_stream=streams(url),
        fits=_fits(dialect, {name for name in _NAMES if b'"%s"' % name.encode() in body}),
        messages=[],
        rest=body,
        marks=[],
        links=[],
        is_opaque=True,
    )


def _digest(*parts: str | bytes) -> bytes:
    made = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        made.update(b"%d:" % len(content))
        made.update(content)
    return made.digest()


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
