"""The tool calls of answers and the results in requests: the same in every dialect, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.adapters.http.canonical import Asked, Reader
from perdure.adapters.http.endpoints import Dialect
from perdure.adapters.http.wire import ToolCall, ToolResult, asked_for, orphans, results_in
from perdure.testing.model_server import ModelServer, broken_tool, tool
from tests.adapters.http.capture import CALLERS, exchange, first
from tests.adapters.http.test_stream import frame

QUESTION = {"q": "a long question, which comes in several pieces", "n": [1, {"deep": "é"}]}


def read(dialect: Dialect, body: dict[str, Any], *, reader: Reader | None = None) -> Asked:
    return (reader or Reader()).read(dialect, "POST", "https://h/v1/x", json.dumps(body).encode())


def data(*events: Any) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("stream", [False, True])
def test_the_calls_of_a_genuine_answer_are_read(model: ModelServer, caller: str, stream: bool) -> None:
    model.says(["Let ", "me."], tool("search", **QUESTION), tool("fetch"), tool("search", q="y"))
    made = exchange(model, caller, stream=stream)
    assert made.is_stream is stream
    calls = asked_for(made.dialect, made.answer, is_stream=stream)
    assert [(call.name, call.arguments) for call in calls] == [
        ("search", QUESTION),
        ("fetch", {}),
        ("search", {"q": "y"}),
    ]
    assert len({call.id for call in calls}) == 3
    assert all(call.id and json.loads(call.raw) == call.arguments for call in calls)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_calls_asks_for_nothing(model: ModelServer, caller: str, stream: bool) -> None:
    model.says("tool_calls: none")
    made = exchange(model, caller, stream=stream)
    assert asked_for(made.dialect, made.answer, is_stream=stream) == []


@pytest.mark.parametrize("caller", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_arguments_that_are_no_json_are_kept_as_they_came(model: ModelServer, caller: str, stream: bool) -> None:
    model.says("x", broken_tool("search", '{"q": "never clo'))
    made = exchange(model, caller, stream=stream)
    (call,) = asked_for(made.dialect, made.answer, is_stream=stream)
    assert (call.name, call.arguments, call.raw) == ("search", None, '{"q": "never clo')


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b'{"choices": 3}', b'{"choices": [{"message": "x"}]}', b"\xff"]
)
@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cannot_be_read_asks_for_nothing(dialect: Dialect, body: bytes, stream: bool) -> None:
    assert asked_for(dialect, body, is_stream=stream) == []


def chunk(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": list(calls)}}]}


@pytest.mark.parametrize(
    "events",
    [
        [
            chunk({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}),
            chunk({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}),
            chunk({"index": 0, "function": {"arguments": '{"x"'}}),
            chunk({"index": 0, "function": {"arguments": ":1}"}}),
        ],
        [  # every call has the index 0, and comes whole
            chunk({"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}),
            chunk({"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}),
        ],
        [  # no index at all
            chunk(
                {"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}}, {"id": "b", "function": {"name": "g"}}
            ),
        ],
        [  # the id again with every piece
            chunk({"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}),
            chunk({"index": 0, "id": "a", "function": {"name": "f", "arguments": ":1}"}}),
            chunk({"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}),
        ],
    ],
)
def test_the_pieces_of_compatible_servers_are_put_together(events: list[Any]) -> None:
    calls = asked_for(Dialect.OPENAI_CHAT, data(*events) + b"data: [DONE]\n\n", is_stream=True)
    assert [(call.id, call.name, call.arguments) for call in calls] == [("a", "f", {"x": 1}), ("b", "g", {})]


def test_the_oldest_form_of_a_call_is_read() -> None:
    body = json.dumps({"choices": [{"message": {"function_call": {"name": "f", "arguments": '{"x":1}'}}}]}).encode()
    assert asked_for(Dialect.OPENAI_CHAT, body, is_stream=False) == [ToolCall("", "f", {"x": 1}, '{"x":1}')]


def test_tools_that_the_provider_performs_itself_are_not_asked_for() -> None:
    output = [
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}"},
        {"type": "reasoning", "id": "r"},
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"},
        {"type": "local_shell_call", "call_id": "s", "action": {"command": ["ls"]}},
    ]
    calls = asked_for(Dialect.OPENAI_RESPONSES, json.dumps({"output": output}).encode(), is_stream=False)
    assert [(call.id, call.name, call.arguments) for call in calls] == [
        ("c", "sql", None),
        ("s", "local_shell", {"command": ["ls"]}),
    ]
    content = [
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    ]
    found = asked_for(Dialect.ANTHROPIC, json.dumps({"content": content}).encode(), is_stream=False)
    assert [call.id for call in found] == ["t"]


def test_the_answers_of_amazon_are_read_whole_and_in_frames() -> None:
    use = {"toolUse": {"toolUseId": "t", "name": "f", "input": {"x": 1}}}
    whole = json.dumps({"output": {"message": {"role": "assistant", "content": [use]}}}).encode()
    framed = (
        frame("contentBlockStart", {"start": {"toolUse": {"toolUseId": "t", "name": "f"}}, "contentBlockIndex": 1})
        + frame("contentBlockDelta", {"delta": {"toolUse": {"input": '{"x"'}}, "contentBlockIndex": 1})
        + frame("contentBlockDelta", {"delta": {"toolUse": {"input": ":1}"}}, "contentBlockIndex": 1})
    )
    for body, stream in ((whole, False), (framed, True)):
        (call,) = asked_for(Dialect.BEDROCK, body, is_stream=stream)
        assert (call.id, call.name, call.arguments) == ("t", "f", {"x": 1})


HISTORIES: dict[str, tuple[Dialect, str, list[Any], list[Any]]] = {
    "chat": (
        Dialect.OPENAI_CHAT,
        "messages",
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            }
        ],
        [
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "two"}]},
        ],
    ),
    "responses": (
        Dialect.OPENAI_RESPONSES,
        "input",
        [
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        ],
        [
            {"type": "function_call_output", "call_id": "a", "output": "one"},
            {"type": "function_call_output", "call_id": "b", "output": "two"},
        ],
    ),
    "anthropic": (
        Dialect.ANTHROPIC,
        "messages",
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "g", "input": {}},
                ],
            }
        ],
        [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "one"}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "two"}]}],
            },
        ],
    ),
    "gemini": (
        Dialect.GEMINI,
        "contents",
        [
            {
                "role": "model",
                "parts": [
                    {"functionCall": {"id": "a", "name": "f", "args": {}}},
                    {"functionCall": {"id": "b", "name": "g", "args": {}}},
                ],
            }
        ],
        [
            {"role": "user", "parts": [{"functionResponse": {"id": "a", "name": "f", "response": "one"}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "b", "name": "g", "response": "two"}}]},
        ],
    ),
    "bedrock": (
        Dialect.BEDROCK,
        "messages",
        [
            {
                "role": "assistant",
                "content": [
                    {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}},
                    {"toolUse": {"toolUseId": "b", "name": "g", "input": {}}},
                ],
            }
        ],
        [
            {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "one"}]}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "b", "content": [{"text": "two"}]}}]},
        ],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_results_carry_the_names_of_their_tools_and_only_new_ones_are_told(name: str) -> None:
    dialect, field, calls, results = HISTORIES[name]
    reader, begun = Reader(), first("gemini" if name == "gemini" else name)
    assert results_in(read(dialect, {field: begun}, reader=reader)) == []
    asked = read(dialect, {field: [*begun, *calls, *results]}, reader=reader)
    assert results_in(asked) == [ToolResult("a", "f", "one"), ToolResult("b", "g", "two")]
    later = read(dialect, {field: [*begun, *calls, *results, *begun]}, reader=reader)
    assert results_in(later) == []
    assert results_in(later, since=0) == results_in(asked)
    split = read(dialect, {field: [*begun, *calls, results[0]]})
    assert results_in(split) == [ToolResult("a", "f", "one")]


@pytest.mark.parametrize("name", HISTORIES)
def test_a_call_without_a_result_is_an_orphan(name: str) -> None:
    dialect, field, calls, results = HISTORIES[name]
    begun = first("gemini" if name == "gemini" else name)
    assert orphans(read(dialect, {field: [*begun, *calls, *results, *begun]})) == []
    assert [each.id for each in orphans(read(dialect, {field: [*begun, *calls, results[0], *begun]}))] == ["b"]
    assert [each.name for each in orphans(read(dialect, {field: [*begun, *calls]}))] == ["f", "g"]


def test_calls_without_ids_are_paired_by_name() -> None:
    call = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"n": n}}} for n in (1, 2)]}
    answered = {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}} for _ in (1, 2)]}
    assert orphans(read(Dialect.GEMINI, {"contents": [call, answered]})) == []
    half = {"role": "user", "parts": answered["parts"][:1]}
    assert [each.arguments for each in orphans(read(Dialect.GEMINI, {"contents": [call, half]}))] == [{"n": 2}]


def test_a_result_whose_call_is_with_the_provider_has_no_name() -> None:
    item = {"type": "function_call_output", "call_id": "a", "output": "one"}
    asked = read(Dialect.OPENAI_RESPONSES, {"previous_response_id": "r", "input": [item]})
    assert results_in(asked) == [ToolResult("a", "", "one")]
    assert orphans(asked) == []
