"""Transcripts of agent sessions as rows of the cabinet, with what is known of each tool call; no SDK is needed here.

A transcript is a sequence of entries, plain JSON objects, each a row of its own. An entry with a `uuid` is kept once,
however often it comes. Beside them stand the tool calls that began and what became of them: written before a tool runs
and after, so that a call whose result never came into the transcript can be closed with what is true of it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure import typed
from perdure.store.cabinet import key_of, names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perdure.store.cabinet import Rows

    Entry = dict[str, Any]
    Fold = Callable[[dict[str, Any] | None], dict[str, Any]]

HEAD, PART, ENTRY, UUID, CALL = b"ch", b"cs", b"ce", b"cu", b"ct"
_DIGITS: Final = 12

NOT_STARTED: Final = "This call was not started: the process ended before. Nothing was done."
IN_DOUBT: Final = (
    "IN DOUBT: this call was started and never confirmed, because the process died. It may have been done, in part or"
    " in whole. Find out before you repeat it, and say so if you cannot."
)
UNKNOWN: Final = (
    "It is not known whether this call was started. Find out before you repeat it, and say so if you cannot."
)


class Head(Struct, frozen=True):
    """What is listed of a session."""

    at_milliseconds: int
    summary: dict[str, Any] | None = None
    is_watched: bool = False
    """Whether every tool call of it is written down before it begins."""
    begun: int = 0
    """How often it was begun before anything of it was kept, this time included."""


class Call(Struct, frozen=True):
    """A tool call that began; what it gave, once that is known."""

    tool: str
    given: Any
    is_over: bool = False
    is_failed: bool = False
    told: Any = None


class Session(Struct, frozen=True):
    """Names a transcript; that of a helper of the session by its subpath."""

    project: str
    session_id: str
    subpath: str = ""

    @property
    def whole(self) -> Session:
        """The session itself, without its helpers' part of it."""
        return Session(self.project, self.session_id)

    def key(self, kind: bytes, *more: str) -> bytes:
        names = (self.project, self.session_id, self.subpath) if kind in (ENTRY, UUID, PART) else self.whole.names
        return key_of(kind, *names, *more)

    @property
    def names(self) -> tuple[str, str]:
        return self.project, self.session_id


def append(rows: Rows, session: Session, entries: Sequence[Entry], *, at_milliseconds: int, fold: Fold) -> None:
    """Add entries behind those that are there, and tell the list of sessions; one transaction."""
    head_key = session.key(HEAD)
    rows.hold(head_key, alone=True)
    seen = {*rows.get([session.key(UUID, entry["uuid"]) for entry in entries if entry.get("uuid")])}
    new: list[Entry] = []
    for entry in entries:
        key = session.key(UUID, entry["uuid"]) if entry.get("uuid") else None
        if key not in seen:
            new.append(entry)
        if key is not None:
            seen.add(key)
    if not new:
        return
    first = _count(rows, session)
    rows.put({session.key(ENTRY, f"{first + number:0{_DIGITS}}"): _encoded(entry) for number, entry in enumerate(new)})
    rows.put({session.key(UUID, entry["uuid"]): b"" for entry in new if entry.get("uuid")})
    if session.subpath:
        rows.put({session.key(PART): b""})
        return
    head = head_of(rows, session) or Head(0)
    summary = fold(head.summary)
    rows.put({head_key: _encoded(msgspec.structs.replace(head, at_milliseconds=at_milliseconds, summary=summary))})


def load(rows: Rows, session: Session) -> list[Entry] | None:
    """Every entry, in order; None where there never was one."""
    found = rows.scan(session.key(ENTRY))
    return [msgspec.json.decode(value) for _, value in found] or None


def head_of(rows: Rows, session: Session) -> Head | None:
    """What is listed of a session; None where it has none."""
    key = session.key(HEAD)
    found = rows.get([key]).get(key)
    return None if found is None else typed.read(found, Head)


def heads(rows: Rows, project: str) -> Iterator[tuple[str, Head]]:
    """The sessions of a project that have a transcript."""
    for key, value in rows.scan(key_of(HEAD, project)):
        head = typed.read(value, Head)
        if head.at_milliseconds:
            yield names_of(key)[1], head


def parts(rows: Rows, session: Session) -> list[str]:
    """The subpaths of a session."""
    return [names_of(key)[2] for key, _ in rows.scan(key_of(PART, *session.names))]


def delete(rows: Rows, session: Session) -> None:
    """Remove a transcript; that of a session with all that belongs to it."""
    if session.subpath:
        for kind in (ENTRY, UUID, PART):
            rows.clear(session.key(kind))
        return
    for kind in (HEAD, PART, ENTRY, UUID, CALL):
        rows.clear(key_of(kind, *session.names))


def enter(rows: Rows, session: Session) -> tuple[Session, bool]:
    """Where a session goes on, and whether it was begun before.

    One that was killed before anything of it was kept is begun anew under another id: its program may have kept the
    first id in a file of its own, and would refuse to begin it twice.
    """
    head = head_of(rows, session) or Head(0)
    begun = head.begun or int(load(rows, session) is not None)
    current = _begun_as(session, begun)
    if begun and load(rows, current) is not None:
        return current, True
    rows.put({session.key(HEAD): _encoded(msgspec.structs.replace(head, begun=begun + 1))})
    current = _begun_as(session, begun + 1)
    watch(rows, current)
    return current, False


def watch(rows: Rows, session: Session) -> None:
    """From now on every tool call of it is written down before it begins; a call that is not, did not begin."""
    head = head_of(rows, session) or Head(0)
    rows.put({session.key(HEAD): _encoded(msgspec.structs.replace(head, is_watched=True))})


def note_call(rows: Rows, session: Session, tool_use_id: str, call: Call) -> None:
    """A tool call begins, or is over."""
    rows.put({session.key(CALL, tool_use_id): _encoded(call)})


def orphans(rows: Rows, session: Session) -> list[Entry]:
    """The entries that close the tool calls which have no result: with what the tool gave, or why that is not known."""
    entries = load(rows, session) or []
    answered = {part.get("tool_use_id") for entry in entries for part in _content(entry, "tool_result")}
    head = head_of(rows, session) or Head(0)
    above = next((entry["uuid"] for entry in reversed(entries) if entry.get("uuid")), None)
    closing: list[Entry] = []
    for entry, part in _last_calls(entries):
        if part["id"] not in answered:
            key = session.key(CALL, part["id"])
            found = rows.get([key]).get(key)
            call = None if found is None else typed.read(found, Call)
            closing.append(_closing(entry, part["id"], _verdict(call, head), above=above))
            above = closing[-1]["uuid"]
    return closing


def untold(rows: Rows, session: Session) -> list[str]:
    """Tool calls that began and that no transcript of the session has, each in words for the model."""
    times = max(1, (head_of(rows, session) or Head(0)).begun)
    return [told for number in range(1, times + 1) for told in _untold(rows, _begun_as(session, number))]


def _untold(rows: Rows, session: Session) -> list[str]:
    entries = [entry for part in ("", *parts(rows, session)) for entry in load(rows, _part(session, part)) or ()]
    known = calls_in(entries)
    prefix = session.key(CALL)
    found = {names_of(key)[2]: typed.read(value, Call) for key, value in rows.scan(prefix)}
    return [
        f"Before the process died you called {call.tool} with {msgspec.json.encode(call.given).decode()}."
        f" What became of it: {_verdict(call, Head(0))[0]}"
        for tool_use_id, call in found.items()
        if tool_use_id not in known
    ]


def calls_in(entries: Sequence[Entry]) -> set[str]:
    """The ids of the tool calls in these entries."""
    return {part["id"] for entry in entries for part in _content(entry, "tool_use")}


def _part(session: Session, subpath: str) -> Session:
    return msgspec.structs.replace(session, subpath=subpath)


def _last_calls(entries: list[Entry]) -> list[tuple[Entry, dict[str, Any]]]:
    """The tool calls of the model's last turn, which may be spread over entries; those before were answered."""
    spoken = [entry for entry in entries if entry.get("type") == "assistant"]
    turn = (spoken[-1].get("message") or {}).get("id") if spoken else None
    last = [entry for entry in spoken if (entry.get("message") or {}).get("id") == turn]
    return [(entry, part) for entry in last for part in _content(entry, "tool_use")]


def _verdict(call: Call | None, head: Head) -> tuple[str, bool]:
    """What the model is told of a call, and whether that is an error."""
    if call is None:
        return (NOT_STARTED if head.is_watched else UNKNOWN), True
    if not call.is_over:
        return IN_DOUBT, True
    told = call.told if isinstance(call.told, str) else msgspec.json.encode(call.told).decode()
    return told, call.is_failed


def _closing(entry: Entry, tool_use_id: str, verdict: tuple[str, bool], *, above: str | None) -> Entry:
    text, is_error = verdict
    result = {"type": "tool_result", "tool_use_id": tool_use_id, "content": text, "is_error": is_error}
    kept = {name: value for name, value in entry.items() if name not in ("message", "requestId")}
    return {
        **kept,
        "type": "user",
        "uuid": _uuid_for(f"closes {tool_use_id}"),
        "parentUuid": above,
        "message": {"role": "user", "content": [result]},
    }


def _content(entry: Entry, kind: str) -> list[dict[str, Any]]:
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("type") == kind]


def _begun_as(session: Session, number: int) -> Session:
    if number <= 1:
        return session
    return msgspec.structs.replace(session, session_id=_uuid_for(f"begins {session.session_id} {number}"))


def _uuid_for(what: str) -> str:
    """The same for the same thing, so that it is done once however often that is tried."""
    digits = hashlib.sha256(f"perdure {what}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


def _count(rows: Rows, session: Session) -> int:
    last = rows.newest(session.key(ENTRY), limit=1)
    return int(names_of(last[0])[-1]) + 1 if last else 0


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)
