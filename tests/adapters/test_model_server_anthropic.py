"""Anthropic's own SDK takes the model server for Anthropic: sync and async, streams, tools, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from perdure.testing.model_server import ModelServer, Usage, broken_tool, tool
from tests.adapters.lazily import Lazily

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = Lazily("anthropic")

TOOL: Any = {"name": "search", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}}
ASKED: Any = [{"role": "user", "content": "What is the weather?"}]
CLAUDE: Any = {"model": "claude", "max_tokens": 100}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


@pytest.fixture
def client(model: ModelServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=model.url, api_key="none") as connected:
        yield connected


def impatient(model: ModelServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=model.url, api_key="none", max_retries=0)


def test_a_conversation_with_parallel_tools_goes_round(model: ModelServer, client: anthropic.Anthropic) -> None:
    model.says("Let me look.", tool("search", q="x"), tool("search", q="y")).says("It is sunny.")
    messages = list(ASKED)
    first = client.messages.create(**CLAUDE, messages=messages, tools=[TOOL])
    assert (first.stop_reason, first.content[0].type) == ("tool_use", "text")
    calls: list[Any] = [block for block in first.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"q": "x"}, {"q": "y"}]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"} for call in calls]
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    done: Any = client.messages.create(**CLAUDE, messages=messages, tools=[TOOL])
    assert (done.content[0].text, done.stop_reason) == ("It is sunny.", "end_turn")
    assert (model.count("answered"), model.unexpected) == (2, [])


def test_a_stream_is_put_together_by_the_sdk(model: ModelServer, client: anthropic.Anthropic) -> None:
    model.says(["It ", "is."], tool("search", q="a long question"), tool("search", q="y"), usage=Usage(12, 7))
    with client.messages.stream(**CLAUDE, messages=ASKED, tools=[TOOL]) as stream:
        kinds = [event.type for event in stream]
        whole: Any = stream.get_final_message()
    assert (kinds[0], kinds[-1], kinds.count("text")) == ("message_start", "message_stop", 2)
    assert whole.content[0].text == "It is."
    assert [block.input for block in whole.content[1:]] == [{"q": "a long question"}, {"q": "y"}]
    assert (whole.usage.input_tokens, whole.usage.output_tokens, whole.stop_reason) == (12, 7, "tool_use")
    assert model.count("answered") == 1


def test_async_clients_are_answered_at_once(model: ModelServer) -> None:
    async def ask_all() -> list[str]:
        async with anthropic.AsyncAnthropic(base_url=model.url, api_key="none") as client:

            async def ask(number: int) -> str:
                messages: Any = [{"role": "user", "content": f"question {number}"}]
                async with client.messages.stream(**CLAUDE, messages=messages) as stream:
                    return "".join([text async for text in stream.text_stream])

            return await asyncio.gather(*(ask(number) for number in range(8)))

    assert asyncio.run(ask_all()) == [f"You said: question {number}" for number in range(8)]


def test_the_sdk_retries_what_it_should_and_the_same_request_is_answered(
    model: ModelServer, client: anthropic.Anthropic
) -> None:
    model.limits(0.01).fails(529, retry_after=0.01).says("at last")
    told: Any = client.messages.create(**CLAUDE, messages=ASKED)
    assert told.content[0].text == "at last"
    assert [request.status for request in model.requests] == [429, 529, 200]
    assert len({request.fingerprint for request in model.requests}) == 1
    assert model.repeated() == []


def test_errors_reach_the_agent_as_the_sdk_names_them(model: ModelServer) -> None:
    model.fails(400).fails(429).fails(401).fails(500)
    expected = [
        anthropic.BadRequestError,
        anthropic.RateLimitError,
        anthropic.AuthenticationError,
        anthropic.InternalServerError,
    ]
    with impatient(model) as client:
        for kind in expected:
            with pytest.raises(kind):
                client.messages.create(**CLAUDE, messages=ASKED)


def test_a_cut_stream_raises_in_the_agent(model: ModelServer) -> None:
    model.cuts(after=4).says("one two three four")
    with impatient(model) as client, pytest.raises(Exception, match=r"incomplete|peer closed"):
        list(client.messages.create(**CLAUDE, messages=ASKED, stream=True))
    assert [(request.state, request.chunks) for request in model.requests] == [("cut", 4)]


def test_an_error_within_a_stream_raises_in_the_agent(model: ModelServer) -> None:
    model.fails(529, "lost the thread", after=4).says("one two three four")
    with impatient(model) as client, pytest.raises(anthropic.APIStatusError, match="lost the thread"):
        list(client.messages.create(**CLAUDE, messages=ASKED, stream=True))


def test_broken_arguments_reach_the_agent_in_a_stream(model: ModelServer, client: anthropic.Anthropic) -> None:
    model.calls(broken_tool("search", '{"q": '))
    events: list[Any] = list(client.messages.create(**CLAUDE, messages=ASKED, stream=True))
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    assert "".join(delta.partial_json for delta in deltas) == '{"q": '


def test_tokens_are_counted(model: ModelServer, client: anthropic.Anthropic) -> None:
    assert client.messages.count_tokens(model="claude", messages=ASKED).input_tokens > 0
    assert (model.count(), model.unexpected) == (0, [])


def test_the_environment_leads_the_sdk_here(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in model.environment().items():
        monkeypatch.setenv(name, value)
    with anthropic.Anthropic() as client:
        told: Any = client.messages.create(**CLAUDE, messages=ASKED)
        assert told.content[0].text == "You said: What is the weather?"
