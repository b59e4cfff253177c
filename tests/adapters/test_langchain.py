"""LangChain's middleware in a run: what is recorded, under which key, and what comes back at a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

import perdure
from perdure.cli import main
from perdure.errors import EffectInDoubt, JournalDiverged, StepFailed, UsageError
from perdure.testing.model_server import ModelServer, Tool
from tests.adapters.lazily import Lazily
from tests.crash.evidence import read_journal

if TYPE_CHECKING:
    import langchain_openai
    import openai
    from langchain import agents
    from langchain_core import messages, tools
    from langgraph import types

    from perdure.adapters import langchain as adapter
else:
    adapter = Lazily("perdure.adapters.langchain")
    agents = Lazily("langchain.agents")
    langchain_openai = Lazily("langchain_openai")
    messages = Lazily("langchain_core.messages")
    openai = Lazily("openai")
    tools = Lazily("langchain_core.tools")
    types = Lazily("langgraph.types")

Perform = Callable[..., Any]
GO = {"messages": [{"role": "user", "content": "go"}]}
performed: list[str] = []


class Refused(ConnectionRefusedError):
    """Nothing was sent: nobody listened."""


def send(what: str) -> str:
    """Send it."""
    performed.append(f"send {what}")
    return f"sent {what}"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_STORE", str(tmp_path / "runs.db"))
    monkeypatch.setenv("PERDURE_DURABILITY", "process")
    performed.clear()


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer() as serving:
        for name, value in serving.environment().items():
            monkeypatch.setenv(name, value)
        yield serving


def invoke(*tools: Any, question: Any = GO, middleware: Any = None, **options: Any) -> Any:
    recovery = middleware if middleware is not None else [adapter.PerdureMiddleware()]
    chat = langchain_openai.ChatOpenAI(model="x", max_retries=0)
    return agents.create_agent(chat, [*tools], middleware=recovery, **options).invoke(question)


def run_twice(body: Perform) -> tuple[Any, Any]:
    """What an agent gives, and what it gives when a run of it is resumed that has everything but its end."""

    given: list[Any] = []

    @perdure.agent
    def twice() -> Any:
        given.append(body())
        if len(given) == 1:
            raise KeyboardInterrupt
        return given[-1]

    with pytest.raises(KeyboardInterrupt):
        perdure.run(twice, run_id="twice")
    return given[0], perdure.run(twice, run_id="twice")


def contents(done: Any) -> list[str]:
    return [str(message.content) for message in done["messages"]]


def keys(run_id: str, tmp_path: Path) -> list[str]:
    return [entry.key for entry in read_journal(tmp_path / "runs.db", run_id).entries if entry.kind == "receipt"]


def test_a_replay_gives_the_same_messages_and_asks_and_does_nothing(model: ModelServer) -> None:
    model.says("I will.", Tool("send", {"what": "a"})).says("Done.")
    first, again = run_twice(lambda: contents(invoke(send)))
    assert first == again == ["go", "I will.", "sent a", "Done."]
    assert (model.count(), performed) == (2, ["send a"])


def test_calls_of_one_tool_by_two_agents_are_told_apart_although_their_ids_are_equal(model: ModelServer) -> None:
    model.calls(Tool("send", {"what": "a"}, id="call_0")).says("Done.")
    first, again = run_twice(lambda: [contents(invoke(send)), contents(invoke(send))])
    assert first == again == [["go", "", "sent a", "Done."]] * 2
    assert performed == ["send a", "send a"]


def test_two_tools_of_one_name_do_not_get_each_others_results(model: ModelServer) -> None:
    @tools.tool("send")
    def other(what: str) -> str:
        """Send it elsewhere."""
        performed.append(f"other {what}")
        return f"sent {what} elsewhere"

    model.calls(Tool("send", {"what": "a"}, id="call_0")).says("Done.")
    first, again = run_twice(lambda: [contents(invoke(send)), contents(invoke(other))])
    assert first == again == [["go", "", "sent a", "Done."], ["go", "", "sent a elsewhere", "Done."]]
    assert performed == ["send a", "other a"]


def test_the_key_of_a_tool_call_is_the_id_that_the_model_gave_it(model: ModelServer, tmp_path: Path) -> None:
    model.calls(Tool("send", {"what": "a"}, id="call_7"), Tool("send", {"what": "b"}, id="call_8")).says("Done.")
    run_twice(lambda: contents(invoke(send)))
    assert sorted(keys("twice", tmp_path)) == ["=send:call_7#1", "=send:call_8#1"]


def test_results_with_more_than_a_text_come_back_whole(model: ModelServer) -> None:
    @tools.tool(response_format="content_and_artifact")
    def draw() -> tuple[str, dict[str, int]]:
        """Draw."""
        return "a circle", {"radius": 3}

    @tools.tool
    def move() -> types.Command[Any]:
        """Move on."""
        return types.Command(update={"messages": [messages.ToolMessage("moved", tool_call_id="call_2")]})

    model.calls(Tool("draw", id="call_1"), Tool("move", id="call_2")).says("Done.")

    def body() -> Any:
        drawn, moved = invoke(draw, move)["messages"][2:4]
        return [drawn.content, drawn.artifact, drawn.name, moved.content, moved.tool_call_id]

    first, again = run_twice(body)
    assert first == again == ["a circle", {"radius": 3}, "draw", "moved", "call_2"]


def test_a_structured_answer_comes_back_as_what_it_was(model: ModelServer) -> None:
    class Verdict(BaseModel):
        word: str
        points: int

    model.calls("Verdict", word="good", points=3)

    def body() -> Any:
        given = invoke(response_format=agents.structured_output.ToolStrategy(Verdict))["structured_response"]
        return [type(given).__name__, given.word, given.points]

    first, again = run_twice(body)
    assert first == again == ["Verdict", "good", 3]
    assert model.count() == 1


def test_a_retry_of_the_model_catches_the_class_it_names_and_is_replayed(model: ModelServer) -> None:
    model.limits(0.0).says("Done.")
    limited = (openai.RateLimitError,)
    retry = agents.middleware.ModelRetryMiddleware(max_retries=2, retry_on=limited, initial_delay=0, jitter=False)
    first, again = run_twice(lambda: contents(invoke(middleware=[retry, adapter.PerdureMiddleware()])))
    assert first == again == ["go", "Done."]
    assert model.count() == 2


def test_a_retry_of_a_tool_that_surely_did_nothing_is_replayed(model: ModelServer) -> None:
    @tools.tool
    def knock() -> str:
        """Knock."""
        performed.append("knock")
        if len(performed) == 1:
            raise Refused("nobody is there")
        return "come in"

    model.calls("knock").says("Done.")
    retry = agents.middleware.ToolRetryMiddleware(max_retries=2, retry_on=(Refused,), initial_delay=0, jitter=False)
    first, again = run_twice(lambda: contents(invoke(knock, middleware=[retry, adapter.PerdureMiddleware()])))
    assert first == again == ["go", "", "come in", "Done."]
    assert performed == ["knock", "knock"]


def test_a_changed_prompt_parks_the_run_and_gets_no_answer_that_was_for_another(model: ModelServer) -> None:
    model.says("Done.")
    prompts = iter(["be brief", "be long"])
    with pytest.raises(JournalDiverged) as parked:
        run_twice(lambda: contents(invoke(system_prompt=next(prompts))))
    assert "model x(" in parked.value.message
    assert model.count() == 1


def test_an_agent_that_is_a_tool_is_gone_through_and_its_own_calls_are_recorded(
    model: ModelServer, tmp_path: Path
) -> None:
    @tools.tool
    def delegate(task: str) -> str:
        """Have somebody else do it."""
        return contents(invoke(send, question={"messages": [{"role": "user", "content": task}]}))[-1]

    model.conversation(containing="inner").calls(Tool("send", {"what": "a"}, id="call_in")).says("Inner done.")
    model.calls("delegate", task="inner").says("Outer done.")
    through = adapter.PerdureMiddleware(tools={"delegate": "inline"})
    first, again = run_twice(lambda: contents(invoke(delegate, middleware=[through])))
    assert first == again == ["go", "", "Inner done.", "Outer done."]
    assert keys("twice", tmp_path) == ["=send:call_in#1"]
    assert performed == ["send a"]


def test_agents_that_are_tools_and_work_at_the_same_time_count_their_calls_each_for_itself(
    model: ModelServer, tmp_path: Path
) -> None:
    @tools.tool
    def delegate(task: str) -> str:
        """Have somebody else do it."""
        return contents(invoke(question={"messages": [{"role": "user", "content": task}]}))[-1]

    for name in ("red", "blue"):
        model.conversation(containing=f"the {name} part").says(f"{name} done")
    model.calls(Tool("delegate", {"task": "the red part"}), Tool("delegate", {"task": "the blue part"})).says("Done.")
    inline = adapter.PerdureMiddleware(tools={"delegate": "inline"})
    first, again = run_twice(lambda: contents(invoke(delegate, middleware=[inline])))
    assert first == again == ["go", "", "red done", "blue done", "Done."]
    entries = read_journal(tmp_path / "runs.db", "twice").entries
    scopes = {entry.key.rpartition(".")[0] for entry in entries if entry.kind == "step"}
    assert len(scopes) == 3


def test_a_tool_that_interrupts_its_graph_is_refused_and_told_what_to_do(model: ModelServer) -> None:
    @tools.tool
    def ask() -> str:
        """Ask somebody."""
        return str(types.interrupt("may I?"))

    model.calls("ask").says("Done.")

    @perdure.agent
    def asking() -> list[str]:
        return contents(invoke(ask))

    with pytest.raises(UsageError) as refused:
        perdure.run(asking)
    assert 'PerdureMiddleware(tools={"ask": "inline"})' in refused.value.hint


def test_a_failure_that_may_have_happened_is_in_doubt_and_a_person_may_give_its_text(model: ModelServer) -> None:
    @tools.tool
    def pay() -> str:
        """Pay."""
        performed.append("pay")
        raise TimeoutError

    model.calls("pay").says("Done.")

    @perdure.agent
    def paying() -> list[str]:
        return contents(invoke(pay))

    with pytest.raises(EffectInDoubt):
        perdure.run(paying, run_id="paying")
    assert main(["settle", "paying", "pay", "--happened", '"paid by hand"']) == 0
    assert perdure.run(paying, run_id="paying") == ["go", "", "paid by hand", "Done."]
    assert performed == ["pay"]


def test_outside_a_run_nothing_is_recorded_and_nothing_changes(model: ModelServer, tmp_path: Path) -> None:
    model.calls("send", what="a").says("Done.")
    assert contents(invoke(send)) == ["go", "", "sent a", "Done."]
    assert not (tmp_path / "runs.db").exists()


def test_a_declaration_that_makes_no_sense_is_refused_at_once() -> None:
    with pytest.raises(UsageError):
        adapter.PerdureMiddleware(tools={"search_*": "free"})


def test_an_exception_that_nobody_can_name_comes_as_a_failed_step(model: ModelServer) -> None:
    class Hidden(ConnectionRefusedError):
        pass

    @tools.tool
    def knock() -> str:
        """Knock."""
        raise Hidden("nobody")

    model.calls("knock").says("Done.")

    @perdure.agent
    def knocking() -> list[str]:
        return contents(invoke(knock))

    with pytest.raises(StepFailed) as failed:
        perdure.run(knocking)
    assert "Hidden: nobody" in failed.value.message
