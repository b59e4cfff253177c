"""What is stored of a request: what is new in it, and where the rest of it stands already.

A request of a conversation repeats nearly all of the one before. It is stored as parts of an earlier request of the
same run and the messages between and behind them, so a run takes the room of what was said, not of all that was sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice
from typing import Final

from msgspec import Raw, Struct

from perdure.adapters.http.canonical import Asked, canonical, fields_in
from perdure.adapters.http.contrast import contrast
from perdure.adapters.http.growing import Growing
from perdure.adapters.http.redact import Redactor
from perdure.errors import CheckpointCorrupt

REMEMBERED: Final = 256
"""Of how many requests every message is known, to find them in a conversation whose beginning was cut off."""

Load = Callable[[str], "StoredRequest | None"]
"""The stored request of a key of this run; None where there is none."""


class Part(Struct, frozen=True, array_like=True, omit_defaults=True):
    """So many messages of the request below, and the new ones behind them."""

    start: int = 0
    count: int = 0
    new: list[Raw] = []


class StoredRequest(Struct, frozen=True, omit_defaults=True):
    """A request as its record has it."""

    dialect: str
    url: str
    model: str
    base: str = ""
    """The key of the earlier request that this one builds on; empty for none."""
    parts: list[Part] = []
    """The conversation."""
    fields: dict[str, Raw] = {}
    """The other fields, where they differ from those of the request below."""
    gone: list[str] = []
    """Fields that the request below has and this one has not."""
    text: str = ""
    """A body that is no JSON object."""


class Restored(Struct, frozen=True):
    """A stored request, whole again."""

    messages: list[Raw]
    fields: dict[str, Raw]


class _Known(Struct, frozen=True):
    key: str
    marks: Growing[bytes]
    rest: bytes


class Requests:
    """The stored requests of a run by what they say; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lately: dict[str, _Known] = {}
        self._at: dict[bytes, str] = {}
        """By the link of a message the key of the request that was the first to have it."""

    def note(self, key: str, asked: Asked, stored: StoredRequest | None = None) -> None:
        """A request is stored under this key; later ones may build on it."""
        del stored  # everything about it follows from what was asked
        with self._lock:
            for link in reversed(asked.links):
                if self._at.setdefault(link, key) != key:
                    break  # whoever had this message had all before it
            self._lately.pop(key, None)
            self._lately[key] = _Known(key, asked.marks, asked.rest)
            while len(self._lately) > REMEMBERED:
                del self._lately[next(iter(self._lately))]

    def candidates(self, asked: Asked) -> list[_Known]:
        """The requests on which to build this one: the one with which it begins, or else what was asked lately."""
        with self._lock:
            for count, link in zip(range(len(asked.links), 0, -1), reversed(asked.links), strict=True):
                known = self._lately.get(self._at.get(link, ""))
                if known is not None and len(asked.links) - count <= _FEWEST_LEFT:
                    return [known]
                if known is not None:
                    return [known, *islice(reversed(self._lately.values()), _MOST_CANDIDATES)]
            return list(islice(reversed(self._lately.values()), _MOST_CANDIDATES))


def shared(asked: Asked, earlier: Requests, redactor: Redactor | None = None) -> StoredRequest:
    """What is to be stored of a request: of what an earlier one has, only where it stands."""
    clean = redactor.text if redactor is not None else _as_it_is
    dialect, url, model = asked.dialect, clean(asked.url), asked.model
    if asked.is_opaque:
        return StoredRequest(dialect, url, model, text=clean(asked.rest.decode(errors="replace")))
    built = [(_parts(asked, below.marks), below) for below in earlier.candidates(asked)]
    parts, below = min(built, key=lambda each: _new_in(each[0])) if built else (_parts(asked, Growing([])), None)
    fields, gone, are_shared = _changed(asked, below.rest if below else b"{}")
    is_based = below is not None and (are_shared or any(part.count for part in parts))
    return StoredRequest(
        dialect,
        url,
        model,
        base=below.key if below is not None and is_based else "",
        parts=[Part(each.start, each.count, [_cleaned(raw, clean) for raw in each.new]) for each in parts],
        fields={name: _cleaned(raw, clean) for name, raw in fields.items()},
        gone=gone if is_based else [],
    )


def restored(stored: StoredRequest, load: Load) -> Restored:
    """The conversation and the other fields of a stored request."""
    chain = [stored]
    while chain[-1].base:
        below = load(chain[-1].base)
        if below is None or len(chain) > _MOST_BELOW:
            raise _missing(chain[-1].base)
        chain.append(below)
    messages: list[Raw] = []
    fields: dict[str, Raw] = {}
    for each in reversed(chain):
        messages = [raw for part in each.parts for raw in (*_taken(messages, part, each.base), *part.new)]
        fields = {name: raw for name, raw in fields.items() if name not in each.gone} | each.fields
    return Restored(messages, fields)


def difference(recorded: StoredRequest, asked: Asked, load: Load, redactor: Redactor | None = None) -> str:
    """In a few lines, where what is asked now differs from what was recorded; empty where it does not."""
    clean = redactor.text if redactor is not None else _as_it_is
    before = restored(recorded, load)
    lines = contrast("address", recorded.url, clean(asked.url))
    lines += contrast("body", recorded.text, clean(asked.rest.decode(errors="replace")) if recorded.text else "")
    lines += _fields_differ(before.fields, {name: _cleaned(raw, clean) for name, raw in asked.fields.items()})
    lines += _messages_differ(before.messages, asked, clean)
    return "\n".join(lines[:_MOST_LINES])


_MOST_BELOW: Final = 1_000_000
_MOST_LINES: Final = 6
_MOST_CANDIDATES: Final = 8
_FEWEST_LEFT: Final = 6
"""So few messages behind the shared beginning are what was said since; more may stand elsewhere in the other one."""

_FEWEST_MOVED: Final = 2
"""A single message that stands elsewhere is stored again: it is as short as saying where."""


def _parts(asked: Asked, marks: Growing[bytes]) -> list[Part]:
    """The conversation as runs of messages of the request below, and what is new between them."""
    count = asked.marks.begun_with(marks)
    places: dict[bytes, int] = {}
    if len(asked.marks) - count > _FEWEST_LEFT:
        places = {mark: at for at, mark in reversed(list(enumerate(marks)))}
    parts = [Part(0, count, [])] if count else []
    at, new = count, list[Raw]()
    while at < len(asked.marks):
        start = places.get(asked.marks[at], -1)
        run = _run(asked.marks, at, marks, start) if start >= 0 else 0
        if run < _FEWEST_MOVED:
            new.append(asked.messages[at])
            at += 1
            continue
        parts = _with_new(parts, new)
        parts.append(Part(start, run, []))
        at, new = at + run, []
    return _with_new(parts, new)


def _changed(asked: Asked, below: bytes) -> tuple[dict[str, Raw], list[str], bool]:
    """The other fields that the request below has not, or not so; those that only it has; whether it has any so."""
    if asked.rest == below:
        return {}, [], True
    now, before = asked.fields, fields_in(below)
    new = {name: raw for name, raw in now.items() if name not in before or bytes(before[name]) != bytes(raw)}
    return new, [name for name in before if name not in now], len(new) < len(now)


def _with_new(parts: list[Part], new: list[Raw]) -> list[Part]:
    if not new:
        return parts
    if not parts:
        return [Part(0, 0, new)]
    last = parts[-1]
    return [*parts[:-1], Part(last.start, last.count, new)]


def _new_in(parts: list[Part]) -> int:
    return sum(len(part.new) for part in parts)


def _run(marks: Growing[bytes], at: int, below: Growing[bytes], start: int) -> int:
    count = 0
    while at + count < len(marks) and start + count < len(below) and marks[at + count] == below[start + count]:
        count += 1
    return count


def _taken(messages: list[Raw], part: Part, base: str) -> list[Raw]:
    taken = messages[part.start : part.start + part.count]
    if len(taken) != part.count:
        raise _missing(base)
    return taken


def _fields_differ(before: dict[str, Raw], now: dict[str, Raw]) -> list[str]:
    lines = []
    for name in sorted(before.keys() | now.keys()):
        was, is_ = before.get(name), now.get(name)
        if was is None or is_ is None or canonical(was) != canonical(is_):
            lines += contrast(name, _shown(was), _shown(is_))
    return lines


def _messages_differ(before: list[Raw], asked: Asked, clean: Callable[[str], str]) -> list[str]:
    for at in range(max(len(before), len(asked.messages))):
        was = before[at] if at < len(before) else None
        now = _cleaned(asked.messages[at], clean) if at < len(asked.messages) else None
        if was is None or now is None or canonical(was) != canonical(now):
            total = f"{len(before)} recorded, {len(asked.messages)} now"
            return contrast(f"{asked.conversation}[{at}] ({total})", _shown(was), _shown(now))
    return []


def _shown(raw: Raw | None) -> str:
    return "" if raw is None else canonical(raw).decode()


def _cleaned(raw: Raw, clean: Callable[[str], str]) -> Raw:
    text = bytes(raw).decode()
    shown = clean(text)
    return raw if shown == text else Raw(shown.encode())


def _as_it_is(text: str) -> str:
    return text


def _missing(key: str) -> CheckpointCorrupt:
    return CheckpointCorrupt(
        f"The recorded request {key}, on which another one builds, is missing or shorter than it was.",
        safe="every recorded answer is untouched.",
        hint="perdure verify",
    )
