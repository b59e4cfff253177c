"""Real graphs on the saver: they stop, go on in another saver, and end as they would in LangGraph's own memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import apsw
import pytest

from perdure import clock
from perdure.errors import CheckpointCorrupt
from tests.adapters.conversations import config
from tests.adapters.lazily import Lazily

if TYPE_CHECKING:
    from langchain_core import messages
    from langgraph import graph as drawing
    from langgraph import types
    from langgraph.checkpoint import base
    from langgraph.checkpoint import memory as in_memory

    from perdure.adapters import langgraph as adapter
    from tests.adapters import graphs
else:
    adapter = Lazily("perdure.adapters.langgraph")
    base = Lazily("langgraph.checkpoint.base")
    drawing = Lazily("langgraph.graph")
    graphs = Lazily("tests.adapters.graphs")
    in_memory = Lazily("langgraph.checkpoint.memory")
    messages = Lazily("langchain_core.messages")
    types = Lazily("langgraph.types")

Durability = Literal["sync", "async", "exit"]


def history(saver: base.BaseCheckpointSaver[Any], thread: str) -> list[Any]:
    """Everything a graph tells of its past that does not depend on when it was."""
    told = graphs.conversation(saver).get_state_history(config(thread))
    return [
        (one.values, one.next, one.metadata["step"], [task.interrupts for task in one.tasks], one.parent_config is None)
        for one in told
    ]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_graph_goes_on_in_another_saver_and_remembers_what_memory_would(durability: Durability, path: Path) -> None:
    memory = in_memory.InMemorySaver()
    for name in ("one", "two"):
        with adapter.PerdureSaver(path) as saver:
            for used in (memory, saver):
                graphs.conversation(used).invoke(
                    {"messages": [messages.HumanMessage("hi", id=name)]},
                    config("t"),
                    durability=durability,
                )
        with adapter.PerdureSaver(path) as saver:
            assert graphs.conversation(saver).get_state(config("t")).next == ("ask",)
            for used in (memory, saver):
                graphs.conversation(used).invoke(types.Command(resume="yes"), config("t"), durability=durability)
    with adapter.PerdureSaver(path) as saver:
        ours, theirs = history(saver, "t"), history(memory, "t")
        assert len(ours) >= 4
        assert [_plain(one) for one in ours] == [_plain(one) for one in theirs]


def test_an_async_graph_goes_on_in_another_saver(saver: adapter.PerdureSaver) -> None:
    async def converse() -> Any:
        await graphs.conversation(saver).ainvoke({"messages": [messages.HumanMessage("hi", id="h")]}, config("t"))
        return await graphs.conversation(saver).ainvoke(types.Command(resume="yes"), config("t"))

    ended = asyncio.run(converse())
    assert [one.id for one in ended["messages"]] == ["a1", "said-1"]
    assert ended["parts"] == [0, 1, 2]


def test_a_node_that_completed_beside_one_that_failed_is_not_repeated(path: Path) -> None:
    called: list[str] = []

    def compiled(saver: adapter.PerdureSaver, *, is_cut: bool) -> Any:
        def good(_: graphs.Conversation) -> dict[str, Any]:
            called.append("good")
            return {"parts": [1]}

        def bad(_: graphs.Conversation) -> dict[str, Any]:
            called.append("bad")
            while is_cut and not _writes(saver):
                clock.sleep(0.002)
            if is_cut:
                raise ConnectionError("the line is cut")
            return {"parts": [2]}

        graph: Any = drawing.StateGraph(graphs.Conversation)
        graph.add_node("good", good)
        graph.add_node("bad", bad)
        graph.add_edge(drawing.START, "good")
        graph.add_edge(drawing.START, "bad")
        return graph.compile(checkpointer=saver)

    with adapter.PerdureSaver(path) as saver, pytest.raises(ConnectionError):
        compiled(saver, is_cut=True).invoke({"messages": [], "parts": []}, config("t"), durability="sync")
    with adapter.PerdureSaver(path) as saver:
        ended = compiled(saver, is_cut=False).invoke(None, config("t"), durability="sync")
    assert sorted(ended["parts"]) == [1, 2]
    assert sorted(called) == ["bad", "bad", "good"]


def test_a_subgraph_keeps_its_own_checkpoints(saver: adapter.PerdureSaver) -> None:
    def ask(_: graphs.Conversation) -> dict[str, Any]:
        return {"messages": [messages.HumanMessage(types.interrupt("who?"), id="who")]}

    inside: Any = drawing.StateGraph(graphs.Conversation)
    inner = inside.add_node("ask", ask).add_edge(drawing.START, "ask").compile(checkpointer=True)
    outside: Any = drawing.StateGraph(graphs.Conversation)
    outer = outside.add_node("inner", inner).add_edge(drawing.START, "inner").compile(checkpointer=saver)
    outer.invoke({"messages": [messages.HumanMessage("hi", id="1")], "parts": []}, config("t"))
    namespaces = {
        one.config["configurable"]["checkpoint_ns"] for one in saver.list({"configurable": {"thread_id": "t"}})
    }
    assert namespaces == {"", "inner"}
    state = outer.get_state(config("t"), subgraphs=True)
    assert state.tasks[0].state.next == ("ask",)
    ended = outer.invoke(types.Command(resume="me"), config("t"))
    assert [one.content for one in ended["messages"]] == ["hi", "me"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_delta_channel_is_rebuilt_also_after_pruning(durability: Durability, saver: adapter.PerdureSaver) -> None:
    for _ in range(2):
        graphs.counting(saver).invoke({"numbers": [-1]}, config("t"), durability=durability)
    before = graphs.counting(saver).get_state(config("t")).values
    assert before == {"numbers": [-1, 1, 2, 3, 4, -1, 6, 7, 8, 9]}
    saver.prune(["t"])
    assert graphs.counting(saver).get_state(config("t")).values == before
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    assert graphs.counting(saver).get_state(config("copy")).values == before


def test_a_delta_channel_without_one_of_its_ancestors_is_an_error(path: Path) -> None:
    with adapter.PerdureSaver(path) as saver:
        graphs.counting(saver).invoke({"numbers": [-1]}, config("t"), durability="sync")
        ids = [one.checkpoint["id"].encode() for one in saver.list(config("t"))]
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM cabinet WHERE substr(key, 1, 2) = CAST('lc' AS BLOB) AND instr(key, ?)", (ids[2],))
    connection.close()
    with adapter.PerdureSaver(path) as saver, pytest.raises(CheckpointCorrupt, match="is missing"):
        graphs.counting(saver).get_state(config("t"))


def _writes(saver: adapter.PerdureSaver) -> list[Any]:
    found = saver.get_tuple(config("t"))
    return [write for write in (found.pending_writes if found else None) or [] if write[1] == "parts"]


def _plain(told: Any) -> Any:
    """The same without ids that are made anew each time."""
    values, following, step, interrupts, is_first = told
    return values, following, step, [[one.value for one in found] for found in interrupts], is_first
