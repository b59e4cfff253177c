"""OpenAI's own SDK takes the model server for OpenAI: both interfaces, sync and async, streams, tools, retries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from perdure.testing.model_server import ModelServer, broken_tool, tool
from tests.adapters.lazily import Lazily

if TYPE_CHECKING:
    import openai
else:
    openai = Lazily("openai")

CHAT_TOOL: Any = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
RESPONSES_TOOL: Any = {"type": "function", "name": "search", "parameters": {"type": "object"}, "strict": False}
ASKED: Any = [{"role": "user", "content": "What is the weather?"}]


class Weather(BaseModel):
    kind: str
    degrees: int


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


@pytest.fixture
def client(model: ModelServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=model.openai_url, api_key="none") as connected:
        yield connected


def impatient(model: ModelServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=model.openai_url, api_key="none", max_retries=0)


def test_a_chat_with_parallel_tools_goes_round(model: ModelServer, client: openai.OpenAI) -> None:
    model.calls(tool("search", q="x"), tool("search", q="y")).says("It is sunny.")
    messages = list(ASKED)
    message = client.chat.completions.create(model="gpt", messages=messages, tools=[CHAT_TOOL]).choices[0].message
    calls: Any = message.tool_calls
    assert [json.loads(call.function.arguments) for call in calls] == [{"q": "x"}, {"q": "y"}]
    messages.append(message.model_dump(exclude_none=True))
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in calls]
    done = client.chat.completions.create(model="gpt", messages=messages, tools=[CHAT_TOOL])
    assert (done.choices[0].message.content, done.choices[0].finish_reason) == ("It is sunny.", "stop")
    assert done.usage is not None
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
    assert (model.count("answered"), model.unexpected) == (2, [])


def test_a_streamed_chat_is_put_together_by_the_sdk(model: ModelServer, client: openai.OpenAI) -> None:
    model.says(["It ", "is."], tool("search", q="a long question"), tool("search", q="y"))
    wanted: Any = {"include_usage": True}
    with client.chat.completions.stream(
        model="gpt", messages=ASKED, tools=[CHAT_TOOL], stream_options=wanted
    ) as stream:
        kinds = {event.type for event in stream}
        whole = stream.get_final_completion()
    assert {"content.delta", "tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds
    said: Any = whole.choices[0].message
    assert said.content == "It is."
    assert [json.loads(call.function.arguments) for call in said.tool_calls] == [{"q": "a long question"}, {"q": "y"}]
    assert whole.choices[0].finish_reason == "tool_calls"
    assert whole.usage is not None
    assert model.count("answered") == 1


def test_a_response_with_parallel_tools_goes_round(model: ModelServer, client: openai.OpenAI) -> None:
    model.calls(tool("search", q="x"), tool("search", q="y")).says("It is sunny.")
    items: list[Any] = list(ASKED)
    first = client.responses.create(model="gpt", input=items, tools=[RESPONSES_TOOL])
    calls: list[Any] = [item for item in first.output if item.type == "function_call"]
    outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"} for call in calls]
    items += [*(call.model_dump(exclude_none=True) for call in calls), *outputs]
    assert client.responses.create(model="gpt", input=items).output_text == "It is sunny."
    built: Any = outputs
    later = client.responses.create(model="gpt", input=built, previous_response_id=first.id)
    assert later.output_text == "It is sunny."
    assert [request.turn for request in model.requests] == [0, 1, 1]


def test_a_streamed_response_is_put_together_by_the_sdk(model: ModelServer, client: openai.OpenAI) -> None:
    model.says(["It ", "is."], tool("search", q="x"))
    with client.responses.stream(model="gpt", input="hello", tools=[RESPONSES_TOOL]) as stream:
        kinds = [event.type for event in stream]
        whole: Any = stream.get_final_response()
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert kinds.count("response.output_text.delta") == 2
    assert (whole.output_text, whole.output[1].arguments, whole.status) == ("It is.", '{"q":"x"}', "completed")


def test_async_clients_are_answered_at_once(model: ModelServer) -> None:
    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=model.openai_url, api_key="none") as client:

            async def ask(number: int) -> str:
                stream = await client.responses.create(model="gpt", input=f"question {number}", stream=True)
                return "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])

            return await asyncio.gather(*(ask(number) for number in range(8)))

    assert asyncio.run(ask_all()) == [f"You said: question {number}" for number in range(8)]
    assert model.count("answered") == 8


def test_an_answer_is_parsed_into_the_type_that_was_asked_for(model: ModelServer, client: openai.OpenAI) -> None:
    chat = client.chat.completions.parse(model="gpt", messages=ASKED, response_format=Weather)
    assert chat.choices[0].message.parsed == Weather(kind="text", degrees=1)
    assert client.responses.parse(model="gpt", input="go", text_format=Weather).output_parsed == Weather(
        kind="text", degrees=1
    )


def test_the_sdk_retries_what_it_should_and_the_same_request_is_answered(
    model: ModelServer, client: openai.OpenAI
) -> None:
    model.limits(0.01).fails(500, retry_after=0.01).says("at last")
    assert client.chat.completions.create(model="gpt", messages=ASKED).choices[0].message.content == "at last"
    assert [(request.status, request.state) for request in model.requests] == [
        (429, "failed"),
        (500, "failed"),
        (200, "answered"),
    ]
    assert len({request.fingerprint for request in model.requests}) == 1
    assert [request.headers["x-stainless-retry-count"] for request in model.requests] == ["0", "1", "2"]


def test_a_server_that_hangs_up_is_tried_again(model: ModelServer, client: openai.OpenAI) -> None:
    model.hangs_up().says("hello")
    assert client.chat.completions.create(model="gpt", messages=ASKED).choices[0].message.content == "hello"
    assert [request.state for request in model.requests] == ["cut", "answered"]


def test_errors_reach_the_agent_as_the_sdk_names_them(model: ModelServer) -> None:
    model.fails(400, "too long").fails(429).fails(401).fails(500).garbles()
    expected = [openai.BadRequestError, openai.RateLimitError, openai.AuthenticationError, openai.InternalServerError]
    with impatient(model) as client:
        for kind in expected:
            with pytest.raises(kind) as failed:
                client.responses.create(model="gpt", input="go")
            assert failed.value.type is not None
            assert "script" in str(failed.value) or "too long" in str(failed.value)
        with pytest.raises(json.JSONDecodeError):
            client.responses.create(model="gpt", input="go")
    assert [request.status for request in model.requests] == [400, 429, 401, 500, 200]


def test_a_cut_stream_raises_in_the_agent(model: ModelServer) -> None:
    model.cuts(after=3, times=2).says("one two three four")
    with impatient(model) as client:
        with pytest.raises(openai.APIConnectionError):
            list(client.chat.completions.create(model="gpt", messages=ASKED, stream=True))
        with pytest.raises(openai.APIConnectionError):
            list(client.responses.create(model="gpt", input="go", stream=True))
    assert [(request.state, request.chunks) for request in model.requests] == [("cut", 3), ("cut", 3)]


def test_an_error_within_a_stream_reaches_the_agent(model: ModelServer) -> None:
    model.fails(500, "lost the thread", after=3, times=2).says("one two three four")
    with impatient(model) as client:
        with pytest.raises(openai.APIError, match="lost the thread"):
            list(client.chat.completions.create(model="gpt", messages=ASKED, stream=True))
        events: list[Any] = list(client.responses.create(model="gpt", input="go", stream=True))
    last = events[-1]
    assert (last.type, last.sequence_number, last.message) == ("error", 3, "lost the thread")


def test_a_client_that_stops_reading_has_abandoned_its_request(model: ModelServer, client: openai.OpenAI) -> None:
    gate = model.gate()
    model.holds(gate, after=3).says("one two three four")
    with client.chat.completions.create(model="gpt", messages=ASKED, stream=True) as stream:
        next(iter(stream))
    assert [request.state for request in model.settled()] == ["abandoned"]


def test_broken_arguments_reach_the_agent(model: ModelServer, client: openai.OpenAI) -> None:
    model.calls(broken_tool("search", '{"q": '))
    calls: Any = client.chat.completions.create(model="gpt", messages=ASKED).choices[0].message.tool_calls
    assert calls[0].function.arguments == '{"q": '


def test_embeddings_and_models_are_answered(model: ModelServer, client: openai.OpenAI) -> None:
    told = client.embeddings.create(model="small", input=["a", "b", "a"], dimensions=40)
    first, second, third = (each.embedding for each in told.data)
    assert (len(first), first == third, first == second) == (40, True, False)
    assert client.models.list().data[0].id == "perdure-model"
    assert client.models.retrieve("gpt").id == "gpt"
    assert model.unexpected == []


def test_the_environment_leads_the_sdk_here(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in model.environment().items():
        monkeypatch.setenv(name, value)
    with openai.OpenAI() as client:
        assert client.responses.create(model="gpt", input="hello").output_text == "You said: hello"
