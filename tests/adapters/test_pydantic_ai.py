"""What an agent of Pydantic AI may rely on inside a run, hazard by hazard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

import perdure
from perdure.adapters.state import NotCaptured
from perdure.errors import EffectInDoubt, UsageError
from perdure.events import Observable, StepCompleted
from perdure.testing.model_server import ModelServer, tool
from tests.adapters.lazily import Lazily
from tests.adapters.replaying import RUN_ID, Replayed, run_twice

if TYPE_CHECKING:
    import mcp
    import pydantic_ai
    from pydantic_ai import exceptions, messages, toolsets
    from pydantic_ai import mcp as servers
    from pydantic_ai.models import function

    from perdure.adapters import pydantic_ai as adapter
    from tests.adapters import pydantic_agent, pydantic_tools
else:
    adapter = Lazily("perdure.adapters.pydantic_ai")
    exceptions = Lazily("pydantic_ai.exceptions")
    function = Lazily("pydantic_ai.models.function")
    mcp = Lazily("mcp")
    messages = Lazily("pydantic_ai.messages")
    pydantic_agent = Lazily("tests.adapters.pydantic_agent")
    pydantic_ai = Lazily("pydantic_ai")
    pydantic_tools = Lazily("tests.adapters.pydantic_tools")
    servers = Lazily("pydantic_ai.mcp")
    toolsets = Lazily("pydantic_ai.toolsets")

pytestmark = pytest.mark.usefixtures("perdure_store", "model")


@dataclass
class Deps:
    notes: list[str] = field(default_factory=list)
    total: int = 0


class Connection:
    """What no journal can hold."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()


@dataclass
class Holding:
    connection: Connection
    done: int = 0


def agent_with(*tools: Any, name: str = "helper", **options: Any) -> pydantic_ai.Agent[Any, str]:
    return pydantic_ai.Agent(
        pydantic_agent.model_here(), name=name, tools=tools, capabilities=[adapter.PerdureDurability(**options)]
    )


@contextmanager
def heard() -> Iterator[dict[str, str]]:
    """What was recorded of each call, by its name."""
    kinds: dict[str, str] = {}

    def hear(event: Observable) -> None:
        if isinstance(event, StepCompleted):
            kinds[event.step] = event.kind

    unsubscribe = perdure.subscribe(hear)
    try:
        yield kinds
    finally:
        unsubscribe()


def test_a_replay_sends_nothing_and_calls_no_tool(model: ModelServer) -> None:
    model.calls(tool("add", number=2), tool("add", number=3)).says("five")
    twice, called = Replayed(), []

    def add(number: int) -> int:
        called.append(number)
        return number

    @perdure.agent
    async def main() -> str:
        answer = await agent_with(add).run("2 + 3?")
        twice.end()
        return answer.output

    assert run_twice(main) == "five"
    assert (sorted(called), model.count(), model.repeated()) == ([2, 3], 2, [])


def test_what_tools_changed_in_deps_is_there_after_a_replay(model: ModelServer) -> None:
    model.calls("note", text="c").calls(tool("note", text="a"), tool("note", text="b")).says("noted")
    twice = Replayed()

    async def note(ctx: pydantic_ai.RunContext[Deps], text: str) -> str:
        await asyncio.sleep(0.05 if text == "a" else 0)  # the first call ends last
        ctx.deps.notes.append(text)
        ctx.deps.total += 1
        return text

    @perdure.agent
    async def main() -> list[Any]:
        deps = Deps()
        kept = deps.notes
        await agent_with(note).run("Note it.", deps=deps)
        twice.end()
        return [deps.notes, deps.total, kept is deps.notes]

    assert run_twice(main) == [["c", "b", "a"], 3, True]


def test_deps_that_cannot_be_stored_are_named_once_and_the_rest_is_captured(model: ModelServer) -> None:
    model.calls("work").calls("work").says("done")
    twice = Replayed()

    def work(ctx: pydantic_ai.RunContext[Holding]) -> str:
        ctx.deps.done += 1
        return "worked"

    @perdure.agent
    async def main() -> int:
        deps = Holding(Connection())
        await agent_with(work).run("Work.", deps=deps)
        twice.end()
        return deps.done

    with pytest.warns(NotCaptured, match=r"Holding\.connection holds a Connection") as said:
        assert run_twice(main) == 2
    assert len(said) == 1


def test_deps_that_tools_only_use_are_passed_over_in_silence(model: ModelServer) -> None:
    model.calls("work").says("done")

    def work(ctx: pydantic_ai.RunContext[Holding]) -> str:
        return "worked"

    @perdure.agent
    async def main() -> str:
        return (await agent_with(work, fixed={"connection"}).run("Work.", deps=Holding(Connection()))).output

    assert perdure.run(main) == "done"


def test_two_tools_of_one_name_are_told_apart(model: ModelServer) -> None:
    model.calls("send").says("done")
    twice, sent = Replayed(), []

    def sending(word: str) -> Any:
        def send() -> str:
            sent.append(word)
            return word

        return send

    async def ask(word: str) -> list[str]:
        answer = await agent_with(sending(word)).run("Send.")
        parts = [part for message in answer.all_messages() for part in message.parts]
        return [str(part.content) for part in parts if isinstance(part, messages.ToolReturnPart)]

    @perdure.agent
    async def main() -> list[Any]:
        together = await asyncio.gather(ask("one"), ask("two"))
        twice.end()
        return [*together]

    assert run_twice(main) == [["one"], ["two"]]
    assert sorted(sent) == ["one", "two"]


def test_calls_whose_ids_the_client_made_are_known_again(model: ModelServer) -> None:
    twice, asked, called = Replayed(), [], []

    async def answer(given: list[messages.ModelMessage], info: function.AgentInfo) -> messages.ModelResponse:
        asked.append(len(given))
        if len(given) > 1:
            return messages.ModelResponse(parts=[messages.TextPart("done")])
        return messages.ModelResponse(
            parts=[messages.ToolCallPart("add", {"number": 1}), messages.ToolCallPart("add", {"number": 1})]
        )

    def add(number: int) -> int:
        called.append(number)
        return number

    @perdure.agent
    async def main() -> str:
        invented: pydantic_ai.Agent[None, str] = pydantic_ai.Agent(
            function.FunctionModel(answer), name="invented", tools=[add], capabilities=[adapter.PerdureDurability()]
        )
        said = await invented.run("Add.")
        twice.end()
        return said.output

    assert run_twice(main) == "done"
    assert (asked, called) == ([1, 3], [1, 1])


def test_a_tool_that_raises_stops_the_run_in_doubt_and_is_not_called_again(model: ModelServer) -> None:
    model.calls("pay", cents=5).says("paid")
    called = []

    def pay(cents: int) -> str:
        called.append(cents)
        raise TimeoutError("no answer")

    @perdure.agent
    async def main() -> str:
        return (await agent_with(pay).run("Pay.")).output

    for _ in range(2):
        with pytest.raises(EffectInDoubt, match="pay"):
            perdure.run(main, run_id=RUN_ID)
    assert (called, model.count()) == ([5], 1)


def test_what_a_tool_tells_the_model_to_correct_is_on_record(model: ModelServer) -> None:
    model.calls("pay", cents=-5).calls("pay", cents=5).says("paid")
    twice, called = Replayed(), []

    def pay(cents: int) -> pydantic_ai.ToolReturn:
        called.append(cents)
        if cents < 0:
            raise pydantic_ai.ModelRetry("above zero")
        return pydantic_ai.ToolReturn(return_value=f"paid {cents}", metadata={"cents": cents})

    @perdure.agent
    async def main() -> str:
        answer = await agent_with(pay).run("Pay.")
        twice.end()
        return answer.output

    assert run_twice(main) == "paid"
    assert (called, model.count()) == ([-5, 5], 3)


def test_a_tool_that_is_an_effect_itself_keeps_its_check(model: ModelServer) -> None:
    model.calls("pay", cents=5).says("paid")
    called = []

    @perdure.effect(in_flight_seconds=0)
    async def pay(cents: int) -> str:
        called.append(cents)
        raise TimeoutError("no answer")

    @pay.check
    async def was_paid(intent: perdure.Intent) -> perdure.Verdict:
        return perdure.happened(f"found {intent.arguments['cents']}")

    @perdure.agent
    async def main() -> str:
        returned = (await agent_with(pay).run("Pay.")).all_messages()[2].parts[0]
        return str(returned.content) if isinstance(returned, messages.ToolReturnPart) else ""

    assert perdure.run(main) == "found 5"
    assert called == [5]


def test_tools_are_declared_by_name_by_pattern_and_by_themselves(model: ModelServer) -> None:
    model.calls(*map(tool, ("keep", "look_here", "read", "send"))).says("done")
    names = toolsets.FunctionToolset[None](id="named")
    for name in ("keep", "look_here", "send"):
        names.add_function(lambda: "x", name=name)
    names.add_function(lambda: "x", name="read", metadata={"perdure": {"kind": "step", "timeout": 5}})

    @perdure.agent
    async def main() -> str:
        agent: pydantic_ai.Agent[None, str] = pydantic_ai.Agent(
            pydantic_agent.model_here(),
            name="helper",
            toolsets=[names],
            capabilities=[adapter.PerdureDurability(tools={"keep": "keyed", "look_*": "step", "read": "effect"})],
        )
        return (await agent.run("Go.")).output

    with heard() as kinds:
        assert perdure.run(main) == "done"
    assert kinds == {"keep": "effect", "look_here": "step", "read": "step", "send": "effect", "helper.model": "step"}


def test_a_tool_that_is_declared_as_something_else_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="declared as 'sometimes'"):
        adapter.PerdureDurability(tools={"send": "sometimes"})


def test_a_model_that_fails_says_so_as_it_does_without_a_run_and_is_asked_again_by_a_resume(model: ModelServer) -> None:
    model.fails(400, "not like this").says("well")

    @perdure.agent
    async def main() -> str:
        return (await agent_with().run("How?")).output

    with pytest.raises(exceptions.ModelHTTPError) as failed:
        perdure.run(main, run_id=RUN_ID)
    assert (failed.value.status_code, failed.value.model_name) == (400, "gpt-5")
    assert "not like this" in str(failed.value.body)
    assert perdure.run(main, run_id=RUN_ID) == "well"


def test_a_request_that_fails_is_repeated_as_often_as_is_allowed(model: ModelServer) -> None:
    model.fails(400, times=2).says("well")

    @perdure.agent
    async def main() -> str:
        retry = perdure.Retry(attempts=3, delay_seconds=0)
        return (await agent_with(retry=retry).run("How?")).output

    assert perdure.run(main) == "well"


def test_tokens_and_a_known_price_are_kept_with_the_step(model: ModelServer) -> None:
    model.says("well")
    spent: list[tuple[int, bool]] = []

    @perdure.agent
    async def main() -> int:
        return (await agent_with().run("How?")).usage.total_tokens

    def hear(event: Observable) -> None:
        if isinstance(event, StepCompleted):
            spent.append((event.tokens, event.dollars > 0))

    unsubscribe = perdure.subscribe(hear)
    try:
        assert [(perdure.run(main), True)] == spent
    finally:
        unsubscribe()


def test_structured_output_and_a_sync_agent_come_back(model: ModelServer) -> None:
    class City(BaseModel):
        name: str

    model.calls("final_result", name="Oslo")
    twice = Replayed()

    @perdure.agent
    def main() -> str:
        teller: pydantic_ai.Agent[None, City] = pydantic_ai.Agent(
            pydantic_agent.model_here(), name="teller", output_type=City, capabilities=[adapter.PerdureDurability()]
        )
        answer = teller.run_sync("Where?")
        twice.end()
        return answer.output.name

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        asyncio.set_event_loop(loop)
        assert run_twice(main) == "Oslo"
    assert model.count() == 1


def test_events_are_handled_once_and_streams_are_the_same_again(model: ModelServer) -> None:
    model.calls(tool("add", number=1), tool("add", number=2)).says(["on", "e"])
    twice, handled, streamed = Replayed(), [], []

    async def handle(ctx: pydantic_ai.RunContext[Any], events: AsyncIterable[Any]) -> None:
        handled.extend([event.event_kind async for event in events])

    def add(number: int) -> int:
        return number

    @perdure.agent
    async def main() -> str:
        async with agent_with(add, event_stream_handler=handle).run_stream("Add.") as stream:
            text = "".join([each async for each in stream.stream_text(delta=True)])
        streamed.append((text, len(handled)))
        twice.end()
        return text

    assert run_twice(main) == "one"
    assert [text for text, _ in streamed] == ["one", "one"]
    assert streamed[0][1] == streamed[1][1] > 4


def test_tools_of_a_server_are_steps_where_it_says_that_they_only_read(model: ModelServer) -> None:
    model.calls(tool("look"), tool("change")).says("done")
    twice, called = Replayed(), []
    server: mcp.server.MCPServer[Any] = mcp.server.MCPServer("things")

    @server.tool(annotations=mcp.types.ToolAnnotations(read_only_hint=True))
    def look() -> str:
        called.append("look")
        return "seen"

    @server.tool()
    def change() -> str:
        called.append("change")
        return "changed"

    @perdure.agent
    async def main() -> str:
        agent: pydantic_ai.Agent[None, str] = pydantic_ai.Agent(
            pydantic_agent.model_here(),
            name="client",
            toolsets=[servers.MCPToolset(server, id="things")],
            capabilities=[adapter.PerdureDurability()],
        )
        answer = await agent.run("Go.")
        twice.end()
        return answer.output

    with heard() as kinds:
        assert run_twice(main) == "done"
    assert (sorted(called), kinds["look"], kinds["change"]) == (["change", "look"], "step", "effect")


def test_tools_that_come_with_a_single_call_are_refused_because_nothing_would_record_them(model: ModelServer) -> None:
    model.says("done")
    extra = toolsets.FunctionToolset[None](id="extra")
    extra.add_function(lambda: "x", name="extra")

    @perdure.agent
    async def main() -> str:
        return (await agent_with().run("Go.", toolsets=[extra])).output

    with pytest.raises(exceptions.UserError, match="perdure"):
        perdure.run(main)
    assert model.count() == 0


def test_tools_by_a_class_of_the_users_own_are_recorded(model: ModelServer) -> None:
    model.calls("double", number=4).says("eight")
    twice, numbers = Replayed(), pydantic_tools.Numbers()

    @perdure.agent
    async def main() -> str:
        agent: pydantic_ai.Agent[None, str] = pydantic_ai.Agent(
            pydantic_agent.model_here(), name="helper", toolsets=[numbers], capabilities=[adapter.PerdureDurability()]
        )
        answer = await agent.run("Twice 4?")
        twice.end()
        return answer.output

    with heard() as kinds:
        assert run_twice(main) == "eight"
    assert (numbers.called, kinds["double"]) == ([4], "effect")


def test_tools_of_an_unknown_class_that_come_with_a_single_call_are_refused(model: ModelServer) -> None:
    @perdure.agent
    async def main() -> str:
        return (await agent_with().run("Go.", toolsets=[pydantic_tools.Numbers()])).output

    with pytest.raises(UsageError, match="cannot be recorded"):
        perdure.run(main)
    assert model.count() == 0


def test_outside_a_run_nothing_is_different(model: ModelServer) -> None:
    model.calls("add", number=1).says("one")
    called = []

    def add(number: int) -> int:
        called.append(number)
        return number

    answer = asyncio.run(agent_with(add).run("Add."))

    assert (answer.output, called) == ("one", [1])
