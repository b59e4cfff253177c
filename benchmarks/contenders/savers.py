"""LangGraph's savers for SQLite, its own and ours, each as it is by default: every commit is synced, in WAL."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.payload import messages
from perdure.adapters.langgraph import PerdureSaver

THREAD = {"configurable": {"thread_id": "measured", "checkpoint_ns": ""}}
Opening = Callable[[Path], contextlib.AbstractContextManager[Any]]


class Conversation(TypedDict):
    """A growing state."""

    messages: Annotated[list[AnyMessage], add_messages]


def sqlite_calls(*, directory: Path, steps: int) -> dict[str, float]:
    return calls(sqlite_saver, directory=directory, steps=steps)


def perdure_calls(*, directory: Path, steps: int) -> dict[str, float]:
    return calls(perdure_saver, directory=directory, steps=steps)


def sqlite_graph(*, directory: Path, steps: int) -> dict[str, float]:
    return graph(sqlite_saver, directory=directory, steps=steps)


def perdure_graph(*, directory: Path, steps: int) -> dict[str, float]:
    return graph(perdure_saver, directory=directory, steps=steps)


def calls(opening: Opening, *, directory: Path, steps: int) -> dict[str, float]:
    """Do what LangGraph does for a loop of one node: put a checkpoint, then what the node wrote."""
    made = [message(number, text) for number, text in enumerate(messages(steps))]
    with opening(directory) as saver:
        above: Any = THREAD
        saver.get_tuple(above)  # opens the store
        started, processor_started = time.perf_counter(), time.process_time()
        for step in range(steps):
            above = saver.put(above, checkpoint(step, made[: step + 1]), metadata(step), {"messages": step + 1})
            saver.put_writes(above, [("messages", [made[step]])], f"task-{step}", "~__pregel_pull, answer")
        seconds, processor = time.perf_counter() - started, time.process_time() - processor_started
        return {"seconds": seconds, "processor_seconds": processor, "read_seconds": read(opening, directory, made)}


def graph(opening: Opening, *, directory: Path, steps: int) -> dict[str, float]:
    """Let a graph add one message per superstep."""
    made = [message(number, text) for number, text in enumerate(messages(steps))]

    def answer(state: Conversation) -> dict[str, list[AnyMessage]]:
        return {"messages": [made[len(state["messages"])]]}

    def route(state: Conversation) -> str:
        return "answer" if len(state["messages"]) < steps else END

    building: Any = StateGraph(Conversation)
    building.add_node("answer", answer)
    building.add_edge(START, "answer")
    building.add_conditional_edges("answer", route, ["answer", END])
    with opening(directory) as saver:
        saver.get_tuple(THREAD)
        compiled = building.compile(checkpointer=saver)
        started, processor_started = time.perf_counter(), time.process_time()
        compiled.invoke({"messages": []}, {**THREAD, "recursion_limit": steps + 10}, durability="sync")
        seconds, processor = time.perf_counter() - started, time.process_time() - processor_started
        return {"seconds": seconds, "processor_seconds": processor, "read_seconds": read(opening, directory, made)}


def read(opening: Opening, directory: Path, expected: list[AnyMessage]) -> float:
    """Return how long another saver takes to open the store and read the newest checkpoint, which must be whole."""
    started = time.perf_counter()
    with opening(directory) as saver:
        found = saver.get_tuple(THREAD)
    seconds = time.perf_counter() - started
    assert found.checkpoint["channel_values"]["messages"] == expected
    return seconds


@contextlib.contextmanager
def sqlite_saver(directory: Path) -> Iterator[SqliteSaver]:
    with SqliteSaver.from_conn_string(str(directory / "checkpoints.db")) as saver:
        yield saver


@contextlib.contextmanager
def perdure_saver(directory: Path) -> Iterator[PerdureSaver]:
    with PerdureSaver(directory / "perdure.db") as saver:
        yield saver


def message(number: int, text: str) -> AnyMessage:
    """Return a message of a conversation in which two take turns."""
    return (AIMessage if number % 2 else HumanMessage)(content=text, id=f"message-{number}")


def checkpoint(step: int, conversation: list[AnyMessage]) -> Checkpoint:
    """Return a checkpoint as a graph with one node makes them."""
    return Checkpoint(
        v=4,
        id=str(uuid6(clock_seq=step)),
        ts="2026-01-01T00:00:00.000000+00:00",
        channel_values={"messages": conversation, "branch:to:answer": None},
        channel_versions={"__start__": 2, "messages": step + 1, "branch:to:answer": step + 1},
        versions_seen={"__input__": {}, "__start__": {"__start__": 1}, "answer": {"branch:to:answer": step}},
        updated_channels=["messages"],
    )


def metadata(step: int) -> dict[str, Any]:
    """Return the metadata that goes with it."""
    return {"source": "loop", "step": step, "parents": {}}
