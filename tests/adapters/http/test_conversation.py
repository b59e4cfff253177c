"""What is stored of requests: all of it comes back, and a run takes the room of what was said."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.http.canonical import Asked, Reader
from perdure.adapters.http.conversation import Part, Requests, StoredRequest, difference, restored, shared
from perdure.adapters.http.endpoints import Dialect
from perdure.adapters.http.redact import Redactor
from perdure.errors import CheckpointCorrupt

URL = "https://h/v1/chat/completions"


class Shelf:
    """The requests of a run, stored as their records would have them: as text."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        self.reader = Reader()
        self.requests = Requests()
        self.redactor = redactor
        self.texts: dict[str, bytes] = {}

    def store(self, messages: list[Any], **fields: Any) -> str:
        asked = self.asked(messages, **fields)
        key = str(len(self.texts))
        self.texts[key] = msgspec.json.encode(shared(asked, self.requests, self.redactor))
        self.requests.note(key, asked)
        return key

    def asked(self, messages: list[Any], **fields: Any) -> Asked:
        body = msgspec.json.encode({"model": "x", "messages": messages, **fields})
        return self.reader.read(Dialect.OPENAI_CHAT, "POST", URL, body)

    def load(self, key: str) -> StoredRequest | None:
        text = self.texts.get(key)
        return None if text is None else msgspec.json.decode(text, type=StoredRequest)

    def read(self, key: str) -> tuple[list[Any], dict[str, Any]]:
        stored = self.load(key)
        assert stored is not None
        found = restored(stored, self.load)
        fields = {name: msgspec.json.decode(raw) for name, raw in found.fields.items()}
        return [msgspec.json.decode(raw) for raw in found.messages], fields

    @property
    def bytes(self) -> int:
        return sum(map(len, self.texts.values()))


def said(number: int, size: int = 100) -> dict[str, str]:
    return {"role": "user", "content": f"{number} " + "x" * size}


messages = st.lists(st.integers(0, 8).map(lambda number: said(number, 2)), max_size=14)


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[list[Any], dict[str, Any]]]:
    """Requests that grow, branch, lose their beginning or their middle, and change their other fields."""
    pool: list[list[Any]] = [draw(messages)]
    made = []
    for _ in range(draw(st.integers(1, 8))):
        base = draw(st.sampled_from(pool))
        start, end = sorted((draw(st.integers(0, len(base))), draw(st.integers(0, len(base)))))
        spoken = draw(st.sampled_from([base, base[:end], base[:1] + base[start:], draw(messages) + base[start:end]]))
        spoken = [*spoken, *draw(st.lists(st.integers(0, 30).map(said), max_size=2))]
        pool.append(spoken)
        made.append((spoken, draw(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)))))
    return made


@settings(deadline=None, max_examples=100)
@given(conversations())
def test_every_stored_request_comes_back_as_it_was(given_requests: list[tuple[list[Any], dict[str, Any]]]) -> None:
    shelf = Shelf()
    keys = [shelf.store(spoken, **fields) for spoken, fields in given_requests]
    for key, (spoken, fields) in zip(keys, given_requests, strict=True):
        assert shelf.read(key) == (spoken, {"model": "x", **fields})


def stored_bytes(count: int, window: int | None = None, *, transient: bool = False) -> tuple[int, int]:
    """The room of so many requests of a conversation that grows by two messages each, and of all that was said."""
    shelf, spoken = Shelf(), [said(-1)]
    tools = [{"name": "t" * 2_000}]
    for turn in range(count):
        spoken = [*spoken, said(2 * turn), said(2 * turn + 1)]
        shown = spoken if window is None else [spoken[0], *spoken[1:][-window:]]
        shelf.store([*shown, said(10_000 + turn, 10)] if transient else shown, tools=tools)
    return shelf.bytes, len(json.dumps(spoken)) + len(json.dumps(tools))


@pytest.mark.parametrize("transient", [False, True])
def test_a_thousand_growing_requests_take_the_room_of_what_was_said(transient: bool) -> None:
    stored, spoken = stored_bytes(1_000, transient=transient)
    assert stored < 2.5 * spoken
    half, _ = stored_bytes(500, transient=transient)
    assert stored < 2.2 * half


def test_a_window_that_moves_over_a_conversation_is_not_stored_again_and_again() -> None:
    stored, spoken = stored_bytes(300, window=100)
    assert stored < 2.5 * spoken


def test_a_field_is_stored_only_where_it_changed() -> None:
    shelf = Shelf()
    shelf.store([said(1)], tools=["long " * 100], temperature=0, seed=1)
    key = shelf.store([said(1), said(2)], tools=["long " * 100], temperature=1)
    stored = shelf.load(key)
    assert stored is not None
    assert (set(stored.fields), stored.gone, stored.base) == ({"temperature"}, ["seed"], "0")
    assert shelf.read(key)[1] == {"model": "x", "tools": ["long " * 100], "temperature": 1}


def test_requests_with_nothing_in_common_do_not_build_on_each_other() -> None:
    shelf = Shelf()
    shelf.store([said(1)], model="a")
    stored = shelf.load(shelf.store([said(2)], model="b"))
    assert stored is not None
    assert (stored.base, [part.count for part in stored.parts]) == ("", [0])


def test_what_is_stored_has_no_secret_and_is_still_built_upon() -> None:
    shelf = Shelf(Redactor({"API_KEY": "correct-horse-battery"}))
    first = [said(1), {"role": "user", "content": 'the key is "correct-horse-battery"'}]
    shelf.store(first, instructions="use correct-horse-battery")
    key = shelf.store([*first, said(2)], instructions="use correct-horse-battery")
    assert b"correct-horse" not in b"".join(shelf.texts.values())
    stored = shelf.load(key)
    assert stored is not None
    assert [(part.start, part.count, len(part.new)) for part in stored.parts] == [(0, 2, 1)]
    assert shelf.read(key)[0][1]["content"] == 'the key is "[redacted]"'


def test_a_body_that_is_no_json_is_stored_as_text() -> None:
    asked = Reader().read(Dialect.OPENAI_CHAT, "POST", URL, b'{"messages": [NaN]}')
    stored = shared(asked, Requests(), Redactor({}))
    assert stored.text == '{"messages": [NaN]}'
    assert difference(stored, asked, lambda _: None) == ""


@pytest.mark.parametrize("parts", [[Part(0, 3, [])], [Part(2, 1, [])]])
def test_a_request_whose_beginning_is_missing_is_never_restored_as_if_it_were_whole(parts: list[Part]) -> None:
    shelf = Shelf()
    shelf.store([said(1), said(2)])
    built = StoredRequest(dialect="openai.chat", url=URL, model="x", base="0", parts=parts)
    with pytest.raises(CheckpointCorrupt):
        restored(built, shelf.load)
    with pytest.raises(CheckpointCorrupt):
        restored(StoredRequest(dialect="openai.chat", url=URL, model="x", base="9"), shelf.load)


def told(shelf: Shelf, key: str, spoken: list[Any], **fields: Any) -> list[str]:
    stored = shelf.load(key)
    assert stored is not None
    return difference(stored, shelf.asked(spoken, **fields), shelf.load, shelf.redactor).splitlines()


def test_the_same_request_differs_in_nothing() -> None:
    shelf = Shelf()
    shelf.store([said(1)], temperature=0)
    key = shelf.store([said(1), said(2)], temperature=0)
    assert told(shelf, key, [said(1), said(2)], temperature=0) == []


def test_the_first_message_that_differs_is_shown_around_its_first_difference() -> None:
    shelf = Shelf()
    before = {"role": "user", "content": "a" * 500 + " on Monday " + "b" * 500}
    shelf.store([said(1)])
    key = shelf.store([said(1), before, said(2)])
    now = {"role": "user", "content": "a" * 500 + " on Tuesday " + "b" * 500}
    lines = told(shelf, key, [said(1), now, said(3)])
    assert lines[0] == "messages[1] (3 recorded, 3 now) differs:"
    assert "a on Monday b" in lines[1]
    assert "a on Tuesday b" in lines[2]
    assert max(map(len, lines)) < 120
    assert len(lines) == 3


def test_a_message_that_is_missing_or_new_is_named() -> None:
    shelf = Shelf()
    key = shelf.store([said(1, 5), said(2, 5)])
    assert told(shelf, key, [said(1, 5)]) == [
        "messages[1] (2 recorded, 1 now) differs:",
        '  recorded: {"content":"2 xxxxx","role":"user"}',
        "  now:      (nothing)",
    ]
    assert "  recorded: (nothing)" in told(shelf, key, [said(1, 5), said(2, 5), said(3, 5)])


def test_a_field_that_differs_is_named_before_the_messages() -> None:
    shelf = Shelf()
    key = shelf.store([said(1)], temperature=0, seed=4)
    lines = told(shelf, key, [said(2)], temperature=1)
    assert lines[:3] == ["seed differs:", "  recorded: 4", "  now:      (nothing)"]
    assert lines[3:] == ["temperature differs:", "  recorded: 0", "  now:      1"]


def test_a_difference_shows_no_secret() -> None:
    shelf = Shelf(Redactor({"API_KEY": "correct-horse-battery"}))
    key = shelf.store([{"role": "user", "content": "key correct-horse-battery a"}])
    lines = told(shelf, key, [{"role": "user", "content": "key correct-horse-battery b"}])
    assert "correct-horse" not in "\n".join(lines)
    assert len(lines) == 3
    assert told(shelf, key, [{"role": "user", "content": "key correct-horse-battery a"}]) == []
