"""Google's own SDK takes the model server for Gemini: sync and async, streams, tools, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.testing.model_server import ModelServer, tool

genai: Any = pytest.importorskip("google.genai", reason="google-genai is not among the packages for tests")


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


@pytest.fixture
def client(model: ModelServer) -> Any:
    return connected(model)


def connected(model: ModelServer, **options: Any) -> Any:
    return genai.Client(api_key="none", http_options={"base_url": model.url, **options})


def offered() -> Any:
    declared = {"name": "search", "parameters_json_schema": {"type": "object"}}
    return {"tools": [{"function_declarations": [declared]}], "automatic_function_calling": {"disable": True}}


def test_a_conversation_with_parallel_tools_goes_round(model: ModelServer, client: Any) -> None:
    model.calls(tool("search", q="x"), tool("search", q="y")).says("It is sunny.")
    contents: list[Any] = [genai.types.UserContent("What is the weather?")]
    first = client.models.generate_content(model="gemini-x", contents=contents, config=offered())
    assert [(call.name, call.args) for call in first.function_calls] == [("search", {"q": "x"}), ("search", {"q": "y"})]
    assert len({call.id for call in first.function_calls}) == 2
    results = [
        genai.types.Part(
            function_response=genai.types.FunctionResponse(id=call.id, name=call.name, response={"result": "sunny"})
        )
        for call in first.function_calls
    ]
    contents += [first.candidates[0].content, genai.types.UserContent(results)]
    done = client.models.generate_content(model="gemini-x", contents=contents, config=offered())
    assert (done.text, done.usage_metadata.total_token_count > 0) == ("It is sunny.", True)
    assert (model.count("answered"), model.unexpected) == (2, [])


def test_the_sdk_calls_the_functions_itself(model: ModelServer, client: Any) -> None:
    asked = []

    def search(q: str) -> str:
        """Search."""
        asked.append(q)
        return "sunny"

    model.calls("search", q="x").replies(lambda said: f"It is {said.results[0].text}.")
    told = client.models.generate_content(model="gemini-x", contents="go", config={"tools": [search]})
    assert (told.text, asked) == ("It is sunny.", ["x"])


def test_a_stream_comes_chunk_by_chunk(model: ModelServer, client: Any) -> None:
    model.says(["It ", "is."], tool("search", q="x"))
    chunks = list(client.models.generate_content_stream(model="gemini-x", contents="go", config=offered()))
    parts = [chunk.candidates[0].content.parts[0] for chunk in chunks]
    assert [part.text for part in parts] == ["It ", "is.", None]
    assert parts[2].function_call.args == {"q": "x"}
    assert chunks[-1].candidates[0].finish_reason == "STOP"
    assert model.count("answered") == 1


def test_async_clients_are_answered_at_once(model: ModelServer, client: Any) -> None:
    async def ask(number: int) -> str:
        stream = await client.aio.models.generate_content_stream(model="gemini-x", contents=f"question {number}")
        return "".join([chunk.text async for chunk in stream])

    async def ask_all() -> list[str]:
        told = await asyncio.gather(*(ask(number) for number in range(8)))
        await client.aio.aclose()
        return told

    assert asyncio.run(ask_all()) == [f"You said: question {number}" for number in range(8)]


def test_the_sdk_retries_what_it_should(model: ModelServer) -> None:
    model.limits(0.01).fails(503).says("at last")
    patient = connected(model, retry_options={"attempts": 3, "initial_delay": 0.01, "max_delay": 0.01})
    assert patient.models.generate_content(model="gemini-x", contents="go").text == "at last"
    assert [request.status for request in model.requests] == [429, 503, 200]
    assert model.repeated() == []


def test_errors_reach_the_agent_as_the_sdk_names_them(model: ModelServer) -> None:
    model.fails(400, "too long").fails(500)
    impatient = connected(model, retry_options={"attempts": 1})
    with pytest.raises(genai.errors.ClientError, match="too long"):
        impatient.models.generate_content(model="gemini-x", contents="go")
    with pytest.raises(genai.errors.ServerError):
        impatient.models.generate_content(model="gemini-x", contents="go")


def test_a_cut_stream_raises_in_the_agent(model: ModelServer, client: Any) -> None:
    model.cuts(after=2).says("one two three four")
    with pytest.raises(Exception, match=r"incomplete|peer closed|Connection broken"):
        list(client.models.generate_content_stream(model="gemini-x", contents="go"))
    assert [(request.state, request.chunks) for request in model.requests] == [("cut", 2)]


def test_embeddings_and_tokens_are_answered(model: ModelServer, client: Any) -> None:
    first, second = client.models.embed_content(model="small", contents=["a", "b"]).embeddings
    assert first.values != second.values
    assert client.models.count_tokens(model="gemini-x", contents="hello").total_tokens > 0
    assert model.unexpected == []
