"""The digest of a request: equal for equal requests however they are laid out, different for any difference."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.http.canonical import REMEMBERED, VOLATILE, Asked, Reader
from perdure.adapters.http.endpoints import Dialect
from perdure.testing.model_server import ModelServer, tool
from tests.adapters.http.capture import CALLERS, Watch, chat, exchange, first

URL = "https://api.openai.com/v1/chat/completions"


def read(body: Any, *, reader: Reader | None = None, url: str = URL, dialect: Dialect = Dialect.OPENAI_CHAT) -> Asked:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (reader or Reader()).read(dialect, "POST", url, content)


def asking(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts], "model": "gpt-4o", **fields}


def plain(asked: Asked) -> tuple[Any, ...]:
    """All that is said of a request, but for what was known before."""
    spoken = [bytes(raw) for raw in asked.messages], list(asked.marks), list(asked.links)
    return asked.digest, asked.model, asked.is_stream, asked.fits, asked.rest, *spoken


@pytest.mark.parametrize(
    "written",
    [
        lambda body: json.dumps(body, indent=3),
        lambda body: json.dumps(body, separators=(",", ":"), ensure_ascii=False),
        lambda body: json.dumps(dict(reversed(body.items()))),
        lambda body: json.dumps(body, sort_keys=True).replace("messages", "mess\\u0061ges"),
    ],
)
def test_the_layout_of_the_json_makes_no_other_request(written: Callable[[Any], str]) -> None:
    body = asking("grüße", "b", temperature=0.5, tools=[{"b": 1, "a": {"d": 2, "c": 3}}])
    assert read(written(body).encode()).digest == read(body).digest


@pytest.mark.parametrize(
    "other",
    [
        asking("a", "c"),
        asking("a"),
        asking("a", "b", "c"),
        asking("b", "a"),
        asking("a", "b", temperature=0),
        asking("a", "b", stream=True),
        asking("a", "b") | {"model": "gpt-4o-mini"},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "model": "gpt-4o"},
        {
            "messages": [{"role": "user", "content": "a", "user": "x"}, {"role": "user", "content": "b"}],
            "model": "gpt-4o",
        },
        {"messages": "ab", "model": "gpt-4o"},
        {"model": "gpt-4o"},
        {"messages": [], "model": "gpt-4o"},
    ],
)
def test_any_other_request_has_another_digest(other: dict[str, Any]) -> None:
    reader = Reader()
    assert read(other, reader=reader).digest != read(asking("a", "b"), reader=reader).digest
    assert read(other, reader=reader).digest == read(other).digest


def test_no_list_and_an_empty_list_of_messages_differ() -> None:
    assert read({"model": "x", "messages": []}).digest != read({"model": "x"}).digest


def test_numbers_that_are_written_differently_for_a_reason_differ() -> None:
    assert read(asking("a", n=1)).digest != read(asking("a", n=1.5)).digest
    assert read(asking("a", n=1)).digest != read(asking("a", n=True)).digest
    assert read(asking("a", seed=2**70)).digest != read(asking("a", seed=2**70 + 1)).digest


@pytest.mark.parametrize("name", sorted(VOLATILE))
def test_a_volatile_field_makes_no_other_request(name: str) -> None:
    reader = Reader()
    one, other = (read(asking("a", **{name: value}), reader=reader) for value in ("1", "2"))
    assert one.digest == other.digest == read(asking("a")).digest
    assert name.encode() not in one.rest


def test_secrets_of_the_address_are_neither_kept_nor_part_of_the_request() -> None:
    one = read(asking("a"), url="https://me:pw@h/v1/chat/completions?api-version=2&key=abc#x")
    assert one.url == "https://h/v1/chat/completions?api-version=2"
    assert one.digest == read(asking("a"), url="https://h/v1/chat/completions?api-version=2").digest
    assert one.digest != read(asking("a"), url="https://h/v1/chat/completions?api-version=3").digest
    assert one.digest != read(asking("a"), url="https://g/v1/chat/completions?api-version=2").digest


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[1]", b'{"a": NaN}', b'{"messages": ["\\ud800"]}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_body_that_is_no_json_object_is_known_by_its_bytes(body: bytes) -> None:
    assert read(body).digest == read(body).digest
    assert read(body).digest != read(body + b" ").digest
    assert (read(body).rest, list(read(body).messages)) == (body, [])


def test_a_body_of_somebody_else_at_such_an_address_does_not_fit() -> None:
    url = "https://chat.example/v1/messages"
    theirs = read({"to": "+49", "text": "hello"}, url=url, dialect=Dialect.ANTHROPIC)
    ours = read({"model": "c", "max_tokens": 1, "messages": []}, url=url, dialect=Dialect.ANTHROPIC)
    assert (theirs.fits, ours.fits) == (False, True)
    assert not read({"answers": [1]}, dialect=Dialect.OPENAI_RESPONSES).fits
    assert read({"model": "x", "input": "hi"}, dialect=Dialect.OPENAI_RESPONSES).fits
    assert read(b'{"messages": [NaN]}').fits


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_sdks_send_is_read(model: ModelServer, caller: str, stream: bool) -> None:
    sent = exchange(model, caller, stream=stream)
    asked = Reader().read(sent.dialect, sent.method, sent.url, sent.body)
    assert (len(asked.messages), asked.is_stream, asked.fits) == (1, stream, True)
    assert asked.model in ("gpt-4o", "gpt-5", "claude-x", "gemini-x")
    assert asked.about == "go"
    again = exchange(model, caller, stream=stream)
    assert Reader().read(again.dialect, again.method, again.url, again.body).digest == asked.digest


def test_the_conversation_of_an_sdk_is_known_from_the_request_before(model: ModelServer) -> None:
    model.calls(tool("search", q="x")).says("done")
    watch, reader = Watch(), Reader()
    said: list[dict[str, Any]] = first("chat")
    chat(model, watch, said, stream=False)
    message = json.loads(watch.exchanges[0].answer)["choices"][0]["message"]
    said += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "found"}]
    chat(model, watch, said, stream=True)
    one, two = (reader.read(each.dialect, each.method, each.url, each.body) for each in watch.exchanges)
    assert (one.known, two.known, two.links[0]) == (0, 1, one.links[0])


texts = st.text(max_size=6)
messages = st.lists(
    st.one_of(st.fixed_dictionaries({"role": st.just("user"), "content": texts}), texts, st.integers(0, 120)),
    max_size=6,
)
layouts: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"separators": (" , ", " : ")},
        {"indent": 1},
        {"separators": (",", ":"), "ensure_ascii": False},
    ]
)


@st.composite
def bodies(draw: st.DrawFn) -> list[bytes]:
    """Bodies that share beginnings, as the requests of a few conversations do."""
    pool = [draw(messages) for _ in range(2)]
    layout = draw(layouts)
    made = []
    for _ in range(draw(st.integers(2, 7))):
        spoken = draw(st.sampled_from(pool))
        cut = draw(st.integers(0, len(spoken)))
        spoken = spoken[:cut] + draw(messages)
        pool.append(spoken)
        fields = {"a": draw(st.integers(0, 1)), "messages": spoken, "b": draw(texts), "user": draw(texts)}
        order = draw(st.permutations(sorted(fields)))
        text = json.dumps({name: fields[name] for name in order}, **layout)
        made.append(draw(st.sampled_from([text, text, text[:-1], text.replace("]", ",]", 1)])).encode())
    return made


@settings(deadline=None, max_examples=150)
@given(bodies())
def test_a_request_reads_the_same_whatever_was_read_before(given_bodies: list[bytes]) -> None:
    reader = Reader()
    for body in given_bodies:
        assert plain(read(body, reader=reader)) == plain(read(body))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (b'{"messages":[1,2],"a":1}', b'{"messages":[1,23],"a":1}'),
        (b'{"messages":[1,2]}', b'{"messages":[1,2,]}'),
        (b'{"messages":["a"]}', b'{"messages":["a"],"messages":["b"]}'),
        (b'{"messages":["a"]}', b'{"messages":["a","b"],"messages":["b"]}'),
        (b'{"messages":["a"]}', b'{"messages":["a"}'),
        (b'{"messages":["a"]}', b'{"messages":["a"]} x'),
        (b'{"messages":[]}', b'{"messages":["a"]}'),
        (b'{"x":{"messages":["a"]},"messages":["b"]}', b'{"x":{"messages":["a"]},"messages":["c"]}'),
        (b'{"messages":["a"],"stream":false}', b'{"messages":["a"],"stream":true}'),
        (b'{"messages":[[1]],"k":1}', b'{"messages":[[1],"k":1}'),
        (b'{"messages":["a"],"k":1}', b'{"messages":["a"],"messages":["b"],"k":1}'),
        (b'{"messages":["a"],"k":1}', b'{"messages":["a","b"],"j":2,"k":1}'),
        (b'{"messages":["a"],"k":1}', b'{"messages":["a","b"],"k":2}'),
        (b'{"k":1,"messages":["a"]}', b'{"k":2,"messages":["a","b"]}'),
        (b'{"messages":["a"],"k":1}', b'{"messages":["a",nothing],"k":1}'),
        (b'{"messages":["a"],"k":1}', b'{"messages" :["a","b"],"k":1}'),
    ],
)
def test_a_beginning_in_common_never_hides_a_difference(before: bytes, now: bytes) -> None:
    reader = Reader()
    read(before, reader=reader)
    assert plain(read(now, reader=reader)) == plain(read(now))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(messages, st.integers(0, 2)), min_size=2, max_size=12), layouts)
def test_a_conversation_that_goes_on_reads_the_same_as_if_it_were_the_first(
    turns: list[tuple[list[Any], int]], layout: dict[str, Any]
) -> None:
    reader, spoken = Reader(), list[Any]()
    for new, transient in turns:
        spoken = [*spoken, *new]
        body = json.dumps({"model": "x", "messages": spoken, "n": [1]}, **layout).encode()
        assert plain(read(body, reader=reader)) == plain(read(body))
        spoken = spoken[: max(0, len(spoken) - transient)]


def test_the_same_conversation_at_another_address_is_read_for_that_address() -> None:
    reader = Reader()
    body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "a"}]}]}).encode()
    for verb in ("generateContent", "streamGenerateContent"):
        url = f"https://h/v1beta/models/{verb[:6]}:{verb}"
        asked = reader.read(Dialect.GEMINI, "POST", url, body)
        assert (asked.is_stream, asked.model) == (verb.startswith("stream"), verb[:6])


def test_as_many_conversations_as_are_remembered_take_turns_without_being_read_anew() -> None:
    reader, known = Reader(), []
    for turn in range(1, 6):
        for agent in range(REMEMBERED):
            texts = [f"you are agent {agent}", *map(str, range(turn))]
            known.append(read(asking(*texts), reader=reader).known)
    assert known[REMEMBERED:] == [count for count in range(2, 6) for _ in range(REMEMBERED)]


def test_a_last_message_that_is_for_one_request_only_costs_no_more() -> None:
    reader = Reader()
    known = [read(asking(*map(str, range(turn)), f"it is {turn}"), reader=reader).known for turn in range(1, 20)]
    assert known[1:] == list(range(1, 19))


def test_readers_on_many_threads_agree() -> None:
    reader = Reader()
    bodies = [asking(*(f"{agent} {turn}" for turn in range(length))) for agent in range(20) for length in range(1, 12)]
    random.Random(1).shuffle(bodies)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda body: read(body, reader=reader).digest, bodies))
    assert found == [read(body).digest for body in bodies]
