"""Real graphs on the saver: they stop, go on in another saver, and end as they would in LangGraph's own memory."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import apsw
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

from perdure import clock
from perdure.adapters.langgraph import PerdureSaver
from perdure.errors import CheckpointCorrupt
from tests.adapters.conversations import config

Durability = Literal["sync", "async", "exit"]


class Conversation(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    parts: Annotated[list[int], operator.add]


class Counted(TypedDict):
    numbers: Annotated[list[int], DeltaChannel(lambda state, writes: [*state, *(n for w in writes for n in w)])]


def conversation(saver: BaseCheckpointSaver[Any]) -> Any:
    """Fans out, joins, removes a message, and asks a person."""

    def answer(state: Conversation) -> dict[str, Any]:
        number = len(state["messages"])
        return {"messages": [AIMessage("an answer " * 30, id=f"a{number}")]}

    def fan(state: Conversation) -> list[Send]:
        return [Send("part", number) for number in range(3)]

    def part(number: int) -> dict[str, Any]:
        return {"parts": [number]}

    def forget(state: Conversation) -> dict[str, Any]:
        return {"messages": [RemoveMessage(id=str(state["messages"][0].id))]}

    def ask(state: Conversation) -> dict[str, Any]:
        said = interrupt({"question": "go on?"})
        return {"messages": [HumanMessage(said, id=f"said-{len(state['messages'])}")]}

    graph: Any = StateGraph(Conversation)
    for name, node in (("answer", answer), ("part", part), ("forget", forget), ("ask", ask)):
        graph.add_node(name, node)
    graph.add_edge(START, "answer")
    graph.add_conditional_edges("answer", fan, ["part"])
    graph.add_edge("part", "forget")
    graph.add_edge("forget", "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=saver)


def history(saver: BaseCheckpointSaver[Any], thread: str) -> list[Any]:
    """Everything a graph tells of its past that does not depend on when it was."""
    told = conversation(saver).get_state_history(config(thread))
    return [
        (one.values, one.next, one.metadata["step"], [task.interrupts for task in one.tasks], one.parent_config is None)
        for one in told
    ]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_graph_goes_on_in_another_saver_and_remembers_what_memory_would(durability: Durability, path: Path) -> None:
    memory = InMemorySaver()
    for name in ("one", "two"):
        with PerdureSaver(path) as saver:
            for used in (memory, saver):
                conversation(used).invoke(
                    {"messages": [HumanMessage("hi", id=name)]}, config("t"), durability=durability
                )
        with PerdureSaver(path) as saver:
            assert conversation(saver).get_state(config("t")).next == ("ask",)
            for used in (memory, saver):
                conversation(used).invoke(Command(resume="yes"), config("t"), durability=durability)
    with PerdureSaver(path) as saver:
        ours, theirs = history(saver, "t"), history(memory, "t")
        assert len(ours) >= 4
        assert [_plain(one) for one in ours] == [_plain(one) for one in theirs]


def test_an_async_graph_goes_on_in_another_saver(saver: PerdureSaver) -> None:
    async def converse() -> Any:
        await conversation(saver).ainvoke({"messages": [HumanMessage("hi", id="h")]}, config("t"))
        return await conversation(saver).ainvoke(Command(resume="yes"), config("t"))

    ended = asyncio.run(converse())
    assert [one.id for one in ended["messages"]] == ["a1", "said-1"]
    assert ended["parts"] == [0, 1, 2]


def test_a_node_that_completed_beside_one_that_failed_is_not_repeated(path: Path) -> None:
    called: list[str] = []

    def compiled(saver: PerdureSaver, *, is_cut: bool) -> Any:
        def good(_: Conversation) -> dict[str, Any]:
            called.append("good")
            return {"parts": [1]}

        def bad(_: Conversation) -> dict[str, Any]:
            called.append("bad")
            while is_cut and not _writes(saver):
                clock.sleep(0.002)
            if is_cut:
                raise ConnectionError("the line is cut")
            return {"parts": [2]}

        graph: Any = StateGraph(Conversation)
        graph.add_node("good", good)
        graph.add_node("bad", bad)
        graph.add_edge(START, "good")
        graph.add_edge(START, "bad")
        return graph.compile(checkpointer=saver)

    with PerdureSaver(path) as saver, pytest.raises(ConnectionError):
        compiled(saver, is_cut=True).invoke({"messages": [], "parts": []}, config("t"), durability="sync")
    with PerdureSaver(path) as saver:
        ended = compiled(saver, is_cut=False).invoke(None, config("t"), durability="sync")
    assert sorted(ended["parts"]) == [1, 2]
    assert sorted(called) == ["bad", "bad", "good"]


def test_a_subgraph_keeps_its_own_checkpoints(saver: PerdureSaver) -> None:
    def ask(_: Conversation) -> dict[str, Any]:
        return {"messages": [HumanMessage(interrupt("who?"), id="who")]}

    inside: Any = StateGraph(Conversation)
    inner = inside.add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=True)
    outside: Any = StateGraph(Conversation)
    outer = outside.add_node("inner", inner).add_edge(START, "inner").compile(checkpointer=saver)
    outer.invoke({"messages": [HumanMessage("hi", id="1")], "parts": []}, config("t"))
    namespaces = {
        one.config["configurable"]["checkpoint_ns"] for one in saver.list({"configurable": {"thread_id": "t"}})
    }
    assert namespaces == {"", "inner"}
    state = outer.get_state(config("t"), subgraphs=True)
    assert state.tasks[0].state.next == ("ask",)
    ended = outer.invoke(Command(resume="me"), config("t"))
    assert [one.content for one in ended["messages"]] == ["hi", "me"]


def counting(saver: BaseCheckpointSaver[Any]) -> Any:
    def count(state: Counted) -> dict[str, Any]:
        return {"numbers": [len(state["numbers"])]}

    def is_short(state: Counted) -> str:
        return "count" if len(state["numbers"]) % 5 else END

    graph = StateGraph(Counted)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    graph.add_conditional_edges("count", is_short, ["count", END])
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_delta_channel_is_rebuilt_also_after_pruning(durability: Durability, saver: PerdureSaver) -> None:
    for _ in range(2):
        counting(saver).invoke({"numbers": [-1]}, config("t"), durability=durability)
    before = counting(saver).get_state(config("t")).values
    assert before == {"numbers": [-1, 1, 2, 3, 4, -1, 6, 7, 8, 9]}
    saver.prune(["t"])
    assert counting(saver).get_state(config("t")).values == before
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    assert counting(saver).get_state(config("copy")).values == before


def test_a_delta_channel_without_one_of_its_ancestors_is_an_error(path: Path) -> None:
    with PerdureSaver(path) as saver:
        counting(saver).invoke({"numbers": [-1]}, config("t"), durability="sync")
        ids = [one.checkpoint["id"].encode() for one in saver.list(config("t"))]
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM cabinet WHERE substr(key, 1, 2) = CAST('lc' AS BLOB) AND instr(key, ?)", (ids[2],))
    connection.close()
    with PerdureSaver(path) as saver, pytest.raises(CheckpointCorrupt, match="is missing"):
        counting(saver).get_state(config("t"))


def _writes(saver: PerdureSaver) -> list[Any]:
    found = saver.get_tuple(config("t"))
    return [write for write in (found.pending_writes if found else None) or [] if write[1] == "parts"]


def _plain(told: Any) -> Any:
    """The same without ids that are made anew each time."""
    values, following, step, interrupts, is_first = told
    return values, following, step, [[one.value for one in found] for found in interrupts], is_first
