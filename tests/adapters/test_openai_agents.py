"""What an agent of the OpenAI Agents SDK may rely on inside a run, hazard by hazard."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

import perdure
from perdure.adapters.state import NotCaptured
from perdure.errors import EffectInDoubt, NotInRun, UsageError
from perdure.events import Observable, StepCompleted
from perdure.testing.model_server import ModelServer, tool
from tests.adapters.lazily import Lazily
from tests.adapters.replaying import RUN_ID, Replayed, run_twice

if TYPE_CHECKING:
    import agents
    import openai

    from perdure.adapters import openai_agents
    from tests.adapters import openai_agent, openai_models
else:
    agents = Lazily("agents")
    openai = Lazily("openai")
    openai_agent = Lazily("tests.adapters.openai_agent")
    openai_agents = Lazily("perdure.adapters.openai_agents")
    openai_models = Lazily("tests.adapters.openai_models")

pytestmark = pytest.mark.usefixtures("perdure_store", "model")


@dataclass
class Notes:
    written: list[str] = field(default_factory=list)
    total: int = 0


class Connection:
    """What no journal can hold."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()


@dataclass
class Holding:
    connection: Connection
    done: int = 0


class City(BaseModel):
    name: str


def helper(*tools: Any, name: str = "helper", **options: Any) -> agents.Agent[Any]:
    return agents.Agent(name=name, instructions="Help.", tools=list(tools), **options)


def named(function: Any, **options: Any) -> agents.FunctionTool:
    return agents.function_tool(function, **options)


@contextmanager
def recorded() -> Iterator[list[str]]:
    """The names of the calls that were recorded meanwhile, in their order."""
    steps: list[str] = []

    def hear(event: Observable) -> None:
        if isinstance(event, StepCompleted):
            steps.append(event.step)

    unsubscribe = perdure.subscribe(hear)
    try:
        yield steps
    finally:
        unsubscribe()


@pytest.mark.parametrize("use_responses", [True, False], ids=["responses", "chat completions"])
def test_a_replay_sends_nothing_and_calls_no_tool(model: ModelServer, use_responses: bool) -> None:
    model.calls(tool("add", number=2), tool("add", number=3)).says("five")
    twice, called = Replayed(), []

    def add(number: int) -> int:
        called.append(number)
        return number

    @perdure.agent
    async def main() -> str:
        result = await openai_agents.run(
            helper(named(add)), "2 + 3?", run_config=openai_agent.config_here(use_responses=use_responses)
        )
        twice.end()
        return str(result.final_output)

    assert run_twice(main) == "five"
    assert (sorted(called), model.count(), model.repeated()) == ([2, 3], 2, [])


@pytest.mark.parametrize("use_responses", [True, False], ids=["responses", "chat completions"])
def test_a_stream_is_the_same_again_and_sends_nothing(model: ModelServer, use_responses: bool) -> None:
    model.calls("add", number=2).says(["t", "w", "o"])
    twice, streamed = Replayed(), []

    def add(number: int) -> int:
        return number

    @perdure.agent
    async def main() -> str:
        result = openai_agents.run_streamed(
            helper(named(add)), "2?", run_config=openai_agent.config_here(use_responses=use_responses)
        )
        kinds, text = [], ""
        async for event in result.stream_events():
            if event.type == "run_item_stream_event":
                kinds.append(event.name)
            elif event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text += event.data.delta
        streamed.append((kinds, text))
        twice.end()
        return str(result.final_output)

    assert run_twice(main) == "two"
    assert streamed[0] == streamed[1] == (["tool_called", "tool_output", "message_output_created"], "two")
    assert model.count() == 2


def test_the_end_of_a_stream_is_on_record_before_anybody_hears_of_it(model: ModelServer) -> None:
    model.says(["t", "w", "o"])
    with recorded() as steps:

        @perdure.agent
        async def main() -> list[Any]:
            slow = helper(model=openai_models.Lingering(openai_agent.config_here().model_provider.get_model("gpt-5")))
            return [
                [event.data.type, len(steps)]
                async for event in openai_agents.run_streamed(slow, "2?").stream_events()
                if event.type == "raw_response_event" and event.data.type in ("response.created", "response.completed")
            ]

        assert perdure.run(main) == [["response.created", 0], ["response.completed", 1]]


def test_what_tools_changed_in_the_context_is_there_after_a_replay(model: ModelServer) -> None:
    model.calls("note", text="c").calls(tool("note", text="a"), tool("note", text="b")).says("noted")
    twice = Replayed()

    async def note(ctx: agents.RunContextWrapper[Notes], text: str) -> str:
        await asyncio.sleep(0.05 if text == "a" else 0)  # the first call ends last
        ctx.context.written.append(text)
        ctx.context.total += 1
        return text

    @perdure.agent
    async def main() -> list[Any]:
        notes = Notes()
        await openai_agents.run(helper(named(note)), "Note it.", context=notes, run_config=openai_agent.config_here())
        twice.end()
        return [notes.written, notes.total]

    assert run_twice(main) == [["c", "b", "a"], 3]


def test_context_that_cannot_be_stored_is_named_once_and_the_rest_is_captured(model: ModelServer) -> None:
    model.calls("work").calls("work").says("done")
    twice = Replayed()

    def work(ctx: agents.RunContextWrapper[Holding]) -> str:
        ctx.context.done += 1
        return "worked"

    @perdure.agent
    async def main() -> int:
        holding = Holding(Connection())
        await openai_agents.run(helper(named(work)), "Work.", context=holding, run_config=openai_agent.config_here())
        twice.end()
        return holding.done

    with pytest.warns(NotCaptured, match=r"Holding\.connection holds a Connection") as said:
        assert run_twice(main) == 2
    assert len(said) == 1


def test_handoffs_and_two_tools_of_one_name_are_told_apart(model: ModelServer) -> None:
    model.calls("send").calls("transfer_to_second").calls("send").says("done")
    twice, sent = Replayed(), []

    def sending(word: str) -> agents.FunctionTool:
        def send() -> str:
            sent.append(word)
            return word

        return named(send)

    second = helper(sending("two"), name="second")
    first = helper(sending("one"), name="first", handoffs=[second])

    @perdure.agent
    async def main() -> list[Any]:
        result = await openai_agents.run(first, "Send.", run_config=openai_agent.config_here())
        twice.end()
        outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
        return [outputs, result.last_agent is second]

    assert run_twice(main) == [["one", "two"], True]
    assert sent == ["one", "two"]


def test_calls_whose_ids_the_client_made_are_known_again(model: ModelServer) -> None:
    twice, called, inventive = Replayed(), [], openai_models.Inventive()

    def add(number: int) -> int:
        called.append(number)
        return number

    @perdure.agent
    async def main() -> str:
        result = await openai_agents.run(helper(named(add), model=inventive), "Add.")
        twice.end()
        return str(result.final_output)

    assert run_twice(main) == "done"
    assert (called, inventive.asked) == ([1, 1], 2)


def test_a_tool_that_raises_stops_the_run_in_doubt_where_the_sdk_would_raise(model: ModelServer) -> None:
    model.calls("pay", cents=5).says("paid")
    called = []

    def pay(cents: int) -> str:
        called.append(cents)
        raise TimeoutError("no answer")

    @perdure.agent
    async def main() -> str:
        strict = named(pay, failure_error_function=None)
        return str(
            (await openai_agents.run(helper(strict), "Pay.", run_config=openai_agent.config_here())).final_output
        )

    for _ in range(2):
        with pytest.raises(EffectInDoubt, match="pay"):
            perdure.run(main, run_id=RUN_ID)
    assert (called, model.count()) == ([5], 1)


def test_what_a_tool_returned_comes_back_as_what_it_was(model: ModelServer) -> None:
    model.calls("find").says("found")
    twice = Replayed()

    def find() -> City:
        return City(name="Oslo")

    @perdure.agent
    async def main() -> str:
        finder = helper(named(find), tool_use_behavior="stop_on_first_tool", output_type=City)
        result = await openai_agents.run(finder, "Where?", run_config=openai_agent.config_here())
        twice.end()
        return f"{type(result.final_output).__name__} {result.final_output.name}"

    assert run_twice(main) == "City Oslo"


def test_an_agent_that_is_a_tool_is_recorded_call_by_call(model: ModelServer) -> None:
    model.conversation(containing="Ask").calls(tool("expert", input="One?"), tool("expert", input="Two?")).says("both")
    for word in ("One?", "Two?"):
        model.conversation(containing=word).calls("add", number=len(word)).says(f"answer to {word}")
    twice, called = Replayed(), []

    def add(number: int) -> int:
        called.append(number)
        return number

    @perdure.agent
    async def main() -> str:
        expert = helper(named(add), name="expert").as_tool("expert", "Knows.")
        result = await openai_agents.run(helper(expert), "Ask", run_config=openai_agent.config_here())
        twice.end()
        return str(result.final_output)

    with recorded() as steps:
        assert run_twice(main) == "both"
    assert (called, model.count(), Counter(steps)) == ([4, 4], 6, {"gpt-5": 6, "add": 2})


def test_a_model_that_fails_says_so_as_its_client_does_and_is_asked_again_by_a_resume(model: ModelServer) -> None:
    model.fails(400, "not like this").says("well")

    @perdure.agent
    async def main() -> str:
        return str((await openai_agents.run(helper(), "How?", run_config=openai_agent.config_here())).final_output)

    with pytest.raises(openai.BadRequestError, match="not like this") as failed:
        perdure.run(main, run_id=RUN_ID)
    assert failed.value.status_code == 400
    assert perdure.run(main, run_id=RUN_ID) == "well"


def test_a_tool_that_an_unrecorded_answer_asks_for_is_not_called(model: ModelServer) -> None:
    model.calls("send").says("done")
    called = []

    def send() -> str:
        called.append(1)
        return "sent"

    sender = helper(named(send, failure_error_function=None), name="sender")

    @agents.input_guardrail(run_in_parallel=False)
    async def guard(ctx: Any, agent: Any, given: Any) -> agents.GuardrailFunctionOutput:
        plain = openai_agent.config_here()
        await agents.Runner.run(sender, "Send.", run_config=plain)
        return agents.GuardrailFunctionOutput(None, tripwire_triggered=False)

    @perdure.agent
    async def main() -> str:
        return str(
            (
                await openai_agents.run(helper(input_guardrails=[guard]), "Go.", run_config=openai_agent.config_here())
            ).final_output
        )

    with pytest.raises(UsageError, match="not on record"):
        perdure.run(main)
    assert called == []


def test_tools_that_the_sdk_executes_by_itself_are_refused(model: ModelServer) -> None:
    shell = agents.LocalShellTool(executor=lambda request: "x")

    @perdure.agent
    async def main() -> str:
        return str((await openai_agents.run(helper(shell), "Go.", run_config=openai_agent.config_here())).final_output)

    with pytest.raises(UsageError, match="LocalShellTool"):
        perdure.run(main)
    assert model.count() == 0


def test_a_session_that_would_be_written_twice_is_refused(model: ModelServer) -> None:
    @perdure.agent
    async def main() -> str:
        return str((await openai_agents.run(helper(), "Go.", session=agents.SQLiteSession("x"))).final_output)

    with pytest.raises(UsageError, match="SQLiteSession cannot be replayed"):
        perdure.run(main)


def test_outside_a_run_there_is_nothing_to_resume() -> None:
    with pytest.raises(NotInRun, match="outside a run"):
        asyncio.run(openai_agents.run(helper(), "Go."))


def test_after_a_run_the_sdk_itself_is_as_it_was(model: ModelServer) -> None:
    model.calls("add", number=2).says("two")
    called = []

    def add(number: int) -> int:
        called.append(number)
        return number

    adder = helper(named(add))

    @perdure.agent
    async def main() -> str:
        return str((await openai_agents.run(adder, "2?", run_config=openai_agent.config_here())).final_output)

    perdure.run(main)
    result = asyncio.run(agents.Runner.run(adder, "2?", run_config=openai_agent.config_here()))

    assert (result.final_output, called, model.count()) == ("two", [2, 2], 4)


def test_a_version_of_the_sdk_with_other_seams_is_refused_at_the_start(
    model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    @perdure.agent
    async def main() -> str:
        return str((await openai_agents.run(helper(), "Go.")).final_output)

    monkeypatch.setattr(agents.Agent, "get_all_tools", lambda self: [])
    with pytest.raises(UsageError, match=r"has no Agent\.get_all_tools"):
        perdure.run(main)
    assert model.count() == 0
