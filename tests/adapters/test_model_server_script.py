"""What the model server says is decided by the conversation and the script, in every dialect."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from perdure.errors import UsageError
from perdure.testing.model_server import Conversation, ModelServer, Usage, answer, broken_tool, tool, use_tools
from tests.adapters.asking import CHAT, EVERY, GEMINI, GEMINI_STREAM, MESSAGES, RESPONSES, ask, chat, question, spoken

TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


@pytest.mark.parametrize("path", EVERY)
def test_each_turn_gets_its_line_whatever_was_asked_before(model: ModelServer, path: str) -> None:
    model.says("one").says("two")
    second = question(path, "hello", "one", "and then?")
    for _ in range(2):
        assert spoken(path, ask(model.url, path, second)) == "two"
    assert spoken(path, ask(model.url, path, question(path, "hello"))) == "one"
    assert [request.turn for request in model.requests] == [1, 1, 0]


@pytest.mark.parametrize("path", EVERY)
def test_without_a_script_equal_conversations_get_equal_answers_byte_for_byte(model: ModelServer, path: str) -> None:
    first, second = (ask(model.url, path, question(path, "hello")) for _ in range(2))
    assert first.text == second.text
    assert spoken(path, first) == "You said: hello"
    assert ask(model.url, path, question(path, "other")).text != first.text


@pytest.mark.parametrize("path", EVERY)
def test_fresh_ids_differ_in_every_answer_to_one_request(path: str) -> None:
    with ModelServer(fresh_ids=True) as model:
        model.calls("search", q="x")
        told = [ask(model.url, path, question(path, "hello")).text for _ in range(3)]
    assert len(set(told)) == 3


@pytest.mark.parametrize("path", EVERY)
def test_a_turn_that_the_script_does_not_have_is_refused_and_noted(model: ModelServer, path: str) -> None:
    model.says("only this")
    told = ask(model.url, path, question(path, "hello", "only this", "more"))
    assert told.status == 400
    assert "The script has 1 turn, and this request asks for turn 2." in told.text
    assert [(request.turn, request.state) for request in model.unexpected] == [(1, "failed")]


def test_a_rule_answers_whenever_it_holds_and_before_the_turns(model: ModelServer) -> None:
    model.says("first")
    model.when(containing="weather").says("sunny")
    model.when(lambda asked: asked.text.isupper()).says("do not shout")
    model.when(turn=4).says("enough")
    model.when(model="tiny").says("small")
    assert spoken(CHAT, chat(model.url, "the weather?")) == "sunny"
    assert spoken(CHAT, chat(model.url, "the weather?", "sunny", "really?")) == "sunny"
    assert spoken(CHAT, chat(model.url, "HELLO")) == "do not shout"
    assert spoken(CHAT, chat(model.url, "a", "b", "c", "d", "e", "f", "g", "h", "i")) == "enough"
    assert spoken(CHAT, ask(model.url, CHAT, question(CHAT, "hello") | {"model": "tiny"})) == "small"
    assert spoken(CHAT, chat(model.url, "hello")) == "first"


def test_a_conversation_has_turns_of_its_own(model: ModelServer) -> None:
    model.says("main")
    helper = model.conversation(lambda asked: asked.system == "You help.")
    helper.says("helper one").says("helper two")

    def told(*said: str) -> str:
        body = question(CHAT, *said)
        body["messages"].insert(0, {"role": "system", "content": "You help."})
        return spoken(CHAT, ask(model.url, CHAT, body))

    assert [told("a"), told("a", "helper one", "b")] == ["helper one", "helper two"]
    assert spoken(CHAT, chat(model.url, "a")) == "main"


def test_a_rule_with_two_answers_is_refused(model: ModelServer) -> None:
    rule = model.when(containing="x").says("one")
    with pytest.raises(UsageError) as refused:
        rule.says("two")
    assert "model.conversation" in refused.value.hint


def test_arguments_for_several_tools_at_once_are_refused(model: ModelServer) -> None:
    with pytest.raises(UsageError) as refused:
        model.calls("search", "fetch", q="x")
    assert "tool(" in refused.value.hint
    assert spoken(CHAT, chat(model.url, "hello")) == "You said: hello"


def test_a_function_makes_the_answer_from_the_conversation(model: ModelServer) -> None:
    def counted(asked: Conversation) -> str:
        return f"{len(asked.messages)} messages, turn {asked.turn}"

    model.replies(counted)
    assert spoken(CHAT, chat(model.url, "hello")) == "1 messages, turn 0"


def test_a_function_of_the_script_that_raises_is_told_and_noted(model: ModelServer) -> None:
    model.replies(lambda asked: answer(str(1 // len(asked.tools))))
    told = chat(model.url, "hello")
    assert told.status == 500
    assert "ZeroDivisionError" in model.unexpected[0].unexpected


def test_what_tools_gave_is_read_with_the_names_of_the_tools(model: ModelServer) -> None:
    seen: list[Any] = []

    def noted(asked: Conversation) -> str:
        seen.append(asked.results)
        return "ok"

    model.says("never asked").replies(noted)
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q":"x"}'}}
    chat_body = {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
        ]
    }
    responses_body = {
        "input": [
            {"role": "user", "content": "go"},
            {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "found"},
        ]
    }
    messages_body = {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "search", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "found"}]},
        ]
    }
    gemini_body = {
        "contents": [
            {"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "search", "args": {}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "c1", "name": "search", "response": {"result": "found"}}}],
            },
        ]
    }
    for path, body in zip(EVERY, (chat_body, responses_body, messages_body, gemini_body), strict=True):
        assert ask(model.url, path, body).status == 200
        (result,) = seen.pop()
        assert (result.id, result.name, result.text) == ("c1", "search", "found")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f"}}]}]}),
        (RESPONSES, {"input": [{"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}]}),
        (RESPONSES, {"input": [{"type": "function_call_output", "call_id": "c1", "output": "x"}]}),
        (MESSAGES, {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f"}]}]}),
    ],
)
def test_a_tool_call_without_its_result_is_refused_as_a_real_server_does(
    model: ModelServer, path: str, body: dict[str, Any]
) -> None:
    told = ask(model.url, path, body)
    assert told.status == 400
    assert "c1" in model.unexpected[0].unexpected


@pytest.mark.parametrize("path", EVERY)
@pytest.mark.parametrize("body", ["not json", "[]", '{"messages": 3, "input": 3, "contents": 3}'])
def test_a_request_that_is_malformed_is_refused_and_noted(model: ModelServer, path: str, body: str) -> None:
    assert ask(model.url, path, body).status == 400
    assert len(model.unexpected) == 1


def test_parallel_tools_have_ids_of_their_own_and_arguments_that_survive(model: ModelServer) -> None:
    model.calls(tool("search", q="ä"), tool("search", q="ä"), tool("fetch", url="u", deep={"a": [1, None]}))
    calls = chat(model.url, "go").json["choices"][0]["message"]["tool_calls"]
    assert len({call["id"] for call in calls}) == 3
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [
        {"q": "ä"},
        {"q": "ä"},
        {"url": "u", "deep": {"a": [1, None]}},
    ]


def test_broken_arguments_travel_as_they_are(model: ModelServer) -> None:
    model.calls(broken_tool("search", '{"q": '))
    (call,) = chat(model.url, "go").json["choices"][0]["message"]["tool_calls"]
    assert call["function"]["arguments"] == '{"q": '
    (block,) = ask(model.url, MESSAGES, question(MESSAGES, "go")).json["content"]
    assert block["input"] == '{"q": '


def test_usage_is_what_the_script_says(model: ModelServer) -> None:
    model.says("hello", usage=Usage(10, 5, cached_tokens=4))
    told = {path: ask(model.url, path, question(path, "go")).json for path in EVERY}
    assert told[CHAT]["usage"]["total_tokens"] == 15
    assert told[RESPONSES]["usage"]["input_tokens_details"]["cached_tokens"] == 4
    assert (told[MESSAGES]["usage"]["input_tokens"], told[MESSAGES]["usage"]["cache_read_input_tokens"]) == (6, 4)
    assert told[GEMINI]["usageMetadata"]["candidatesTokenCount"] == 5


@pytest.mark.parametrize(
    ("stop", "reasons"),
    [
        ("end", ("stop", None, "end_turn", "STOP")),
        ("length", ("length", {"reason": "max_output_tokens"}, "max_tokens", "MAX_TOKENS")),
        ("filter", ("content_filter", {"reason": "content_filter"}, "refusal", "SAFETY")),
    ],
)
def test_each_dialect_says_why_the_answer_stopped(model: ModelServer, stop: Any, reasons: tuple[Any, ...]) -> None:
    model.says("hello", stop=stop)
    told = {path: ask(model.url, path, question(path, "go")).json for path in EVERY}
    assert reasons == (
        told[CHAT]["choices"][0]["finish_reason"],
        told[RESPONSES]["incomplete_details"],
        told[MESSAGES]["stop_reason"],
        told[GEMINI]["candidates"][0]["finishReason"],
    )


def test_streams_end_with_the_terminal_event_of_their_dialect(model: ModelServer) -> None:
    model.says(["Hel", "lo"])
    chunks = ask(model.url, CHAT, question(CHAT, "go", stream=True)).events
    assert [json.loads(chunk)["choices"][0]["delta"].get("content") for chunk in chunks[:-1]] == ["", "Hel", "lo", None]
    assert chunks[-1] == "[DONE]"
    kinds = [
        json.loads(each)["type"] for each in ask(model.url, RESPONSES, question(RESPONSES, "go", stream=True)).events
    ]
    assert (kinds.count("response.output_text.delta"), kinds[-1]) == (2, "response.completed")
    kinds = [
        json.loads(each)["type"] for each in ask(model.url, MESSAGES, question(MESSAGES, "go", stream=True)).events
    ]
    assert (kinds.count("content_block_delta"), kinds[-1]) == (2, "message_stop")
    parts = [json.loads(each) for each in ask(model.url, GEMINI_STREAM, question(GEMINI, "go")).events]
    assert ["finishReason" in part["candidates"][0] for part in parts] == [False, True]


def test_a_stream_of_gemini_without_events_is_one_array(model: ModelServer) -> None:
    model.says(["Hel", "lo"])
    parts = ask(model.url, GEMINI_STREAM.partition("?")[0], question(GEMINI, "go")).json
    assert [part["candidates"][0]["content"]["parts"][0]["text"] for part in parts] == ["Hel", "lo"]


def test_a_response_builds_on_an_earlier_one_and_an_unknown_one_is_refused(model: ModelServer) -> None:
    model.calls("search", q="x").says("done")
    first = ask(model.url, RESPONSES, question(RESPONSES, "go")).json
    output = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "found"}
    later = {"model": "x", "previous_response_id": first["id"], "input": [output]}
    assert spoken(RESPONSES, ask(model.url, RESPONSES, later)) == "done"
    told = ask(model.url, RESPONSES, later | {"previous_response_id": "resp_unknown"})
    assert (told.status, "resp_unknown" in told.text) == (400, True)


def test_without_a_script_a_schema_is_fitted_and_a_demanded_tool_is_called(model: ModelServer) -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"$ref": "#/$defs/kind"}, "sizes": {"type": "array", "items": {"type": "integer"}}},
        "required": ["kind", "sizes"],
        "$defs": {"kind": {"enum": ["a", "b"]}},
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    told = ask(model.url, CHAT, question(CHAT, "go") | {"response_format": wanted})
    assert json.loads(spoken(CHAT, told)) == {"kind": "a", "sizes": [1]}
    told = ask(model.url, CHAT, question(CHAT, "go") | {"tools": [TOOL], "tool_choice": "required"})
    assert told.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "search"


def test_a_model_that_uses_tools_calls_each_once_and_then_sums_up() -> None:
    with ModelServer(default=use_tools) as model:
        body = question(CHAT, "go") | {"tools": [TOOL]}
        message = ask(model.url, CHAT, body).json["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "found"}
        body["messages"] += [message, result]
        assert spoken(CHAT, ask(model.url, CHAT, body)) == "The tools say: search: found"


@pytest.mark.parametrize("path", EVERY)
def test_an_error_hits_the_first_requests_and_then_the_answer_comes(model: ModelServer, path: str) -> None:
    model.fails(500, times=2).limits(0.25).fails(400, "no").says("at last")
    told = [ask(model.url, path, question(path, "go")) for _ in range(5)]
    assert [each.status for each in told] == [500, 500, 429, 400, 200]
    assert (told[2].headers["retry-after"], told[2].headers["retry-after-ms"]) == ("1", "250")
    assert "retry-after" not in told[3].headers
    assert told[3].json["error"]["message"] == "no"
    assert spoken(path, told[4]) == "at last"
    assert [request.state for request in model.requests] == ["failed"] * 4 + ["answered"]
    assert model.unexpected == []


def test_an_error_can_be_for_good(model: ModelServer) -> None:
    model.fails(503, times=None)
    assert {chat(model.url, "go").status for _ in range(5)} == {503}


def test_a_cut_stream_ends_after_so_many_chunks_and_the_next_one_is_whole(model: ModelServer) -> None:
    model.cuts(after=2).says(["a", "b", "c"])
    with pytest.raises(http.client.IncompleteRead) as cut:
        chat(model.url, "go", stream=True)
    assert cut.value.partial.count(b"data: ") == 2
    assert chat(model.url, "go", stream=True).events[-1] == "[DONE]"
    assert [(request.state, request.chunks) for request in model.requests] == [("cut", 2), ("answered", 6)]
    assert model.repeated() == []


def test_a_cut_answer_that_is_not_streamed_ends_in_its_middle(model: ModelServer) -> None:
    model.cuts(after=1).says("hello")
    with pytest.raises(http.client.IncompleteRead):
        chat(model.url, "go")
    assert model.requests[0].state == "cut"


def test_an_error_in_the_middle_of_a_stream_is_an_event(model: ModelServer) -> None:
    model.fails(529, "too busy", after=2).says(["a", "b", "c"])
    events = ask(model.url, MESSAGES, question(MESSAGES, "go", stream=True)).events
    assert len(events) == 3
    assert json.loads(events[-1])["error"] == {"type": "overloaded_error", "message": "too busy"}
    assert model.requests[0].state == "failed"


def test_a_server_that_hangs_up_says_nothing(model: ModelServer) -> None:
    model.hangs_up().says("hello")
    with pytest.raises(http.client.RemoteDisconnected):
        chat(model.url, "go")
    assert (model.requests[0].state, model.requests[0].status) == ("cut", 0)
    assert spoken(CHAT, chat(model.url, "go")) == "hello"


def test_a_garbled_answer_is_sent_as_it_is(model: ModelServer) -> None:
    model.garbles('{"choices": ').says("hello")
    told = chat(model.url, "go")
    assert (told.status, told.text) == (200, '{"choices": ')
    assert model.requests[0].state == "failed"


def test_a_held_stream_stops_at_its_gate_until_it_is_opened(model: ModelServer) -> None:
    gate = model.gate()
    model.holds(gate, after=2).says(["a", "b", "c"])
    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(chat, model.url, "go", stream=True)
        gate.wait()
        assert [(request.state, request.chunks) for request in model.requests] == [("in flight", 2)]
        gate.open()
        assert told.result(60).events[-1] == "[DONE]"
    assert model.requests[0].state == "answered"


def test_waiting_for_what_never_comes_is_an_error_with_a_hint(model: ModelServer) -> None:
    with pytest.raises(UsageError) as refused:
        model.gate("slow").wait(seconds=0.01)
    assert "'slow'" in refused.value.message
    assert "model.requests" in refused.value.hint


def test_an_unknown_address_is_404_and_noted(model: ModelServer) -> None:
    for method, path in (("POST", "/v1/images"), ("GET", "/"), ("DELETE", "/v1/files/1")):
        told = ask(model.url, path, "{}", method=method)
        assert told.status == 404
        assert f"knows no {method} {path}" in told.json["error"]["message"]
    assert len(model.unexpected) == 3
    assert model.count() == 0


def test_small_addresses_answer_and_only_embeddings_count(model: ModelServer) -> None:
    vectors = ask(model.url, "/v1/embeddings", {"model": "e", "input": ["a", "b", "a"]}).json["data"]
    assert vectors[0]["embedding"] == vectors[2]["embedding"] != vectors[1]["embedding"]
    assert ask(model.url, "/v1/models", "", method="GET").json["data"]
    assert ask(model.url, "/v1/messages/count_tokens", question(MESSAGES, "hello")).json["input_tokens"] > 0
    assert (model.count(), model.unexpected) == (1, [])
    assert ask(model.url, "/v1/embeddings", {"input": "a", "dimensions": "many"}).status == 400
    assert len(model.unexpected) == 1


def test_a_server_that_is_not_started_has_no_address() -> None:
    with pytest.raises(UsageError):
        print(ModelServer().url)


def test_a_port_that_is_taken_is_refused_with_a_hint(model: ModelServer) -> None:
    with pytest.raises(UsageError) as refused:
        ModelServer(port=int(model.url.rpartition(":")[2])).start()
    assert "port 0" in refused.value.hint
