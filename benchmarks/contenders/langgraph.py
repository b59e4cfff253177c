"""LangGraph with its SQLite savers: one node that loops, two commits per superstep, in WAL.

By default (`durability="async"`) a checkpoint is written behind the next node, however far behind; with
`durability="sync"` it is on disk before the next node starts, which is what the other contenders do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

from benchmarks.interruption import Interruption
from benchmarks.payload import RESULT, messages
from benchmarks.resident import resident_bytes
from benchmarks.spans import tenths
from benchmarks.stopwatch import Stopwatch

WARM_UP_STEPS = 20
RESUMED_RUN = "resumed"
ENDLESS = 1_000_000_000
interruption = Interruption()


class Progress(TypedDict):
    """A small state that does not grow."""

    taken: int
    wanted: int
    found: str


class Conversation(TypedDict):
    """A growing state, stored whole in every checkpoint."""

    messages: Annotated[list[AnyMessage], add_messages]


class DeltaConversation(TypedDict):
    """A growing state, stored as changes (opt-in, beta)."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


def sequential(*, directory: Path, steps: int, warm_up: int, durability: str) -> dict[str, float]:
    """Time one thread of that many supersteps."""
    with SqliteSaver.from_conn_string(database_in(directory)) as saver:
        graph = looping(Progress, search_flights, more_wanted).compile(checkpointer=saver)
        graph.invoke(beginning(1 + warm_up), config("warm-up"), durability=durability)
        stopwatch = Stopwatch()
        graph.invoke(beginning(steps), config("measured"), durability=durability)
        return stopwatch.rates(steps)


def concurrent(*, directory: Path, runs: int, steps: int, warm_up: int, durability: str) -> dict[str, float]:
    """Time many threads at once on one event loop."""

    async def search(state: Progress) -> dict[str, Any]:
        return search_flights(state)

    async def measured() -> dict[str, float]:
        async with AsyncSqliteSaver.from_conn_string(database_in(directory)) as saver:
            graph = looping(Progress, search, more_wanted).compile(checkpointer=saver)
            await graph.ainvoke(beginning(1 + warm_up), config("warm-up"), durability=durability)
            stopwatch = Stopwatch()
            await asyncio.gather(
                *(graph.ainvoke(beginning(steps), config(str(run)), durability=durability) for run in range(runs))
            )
            return stopwatch.rates(runs * steps)

    return asyncio.run(measured())


def conversation_whole(*, directory: Path, steps: int, warm_up: int) -> dict[str, float]:
    """Keep the conversation in the state, as `MessagesState` does."""
    return conversation(Conversation, directory=directory, steps=steps, warm_up=warm_up)


def conversation_delta(*, directory: Path, steps: int, warm_up: int) -> dict[str, float]:
    """Keep the conversation in a DeltaChannel."""
    return conversation(DeltaConversation, directory=directory, steps=steps, warm_up=warm_up)


def conversation(state_type: type, *, directory: Path, steps: int, warm_up: int) -> dict[str, float]:
    """Add one message of 2 KB per superstep."""
    texts = messages(steps)
    marks: list[float] = []

    def answer(state: Any) -> dict[str, list[AIMessage]]:
        marks.append(time.perf_counter())
        return {"messages": [AIMessage(content=texts[len(state["messages"])])]}

    def route(state: Any) -> str:
        return "answer" if len(state["messages"]) < steps else END

    with SqliteSaver.from_conn_string(database_in(directory)) as saver:
        graph = looping(state_type, answer, route).compile(checkpointer=saver)
        if warm_up:
            small = looping(Progress, search_flights, more_wanted).compile(checkpointer=saver)
            small.invoke(beginning(1 + warm_up), config("warm-up"), durability="sync")
        graph.invoke({"messages": []}, config("measured"), durability="sync")
    return tenths(marks)


def interrupt(*, directory: Path, steps: int) -> None:
    """Leave a thread of that many completed supersteps behind, killed inside the next one."""
    interruption.kill_after(steps)
    with SqliteSaver.from_conn_string(database_in(directory)) as saver:
        graph = looping(Progress, travel, more_wanted).compile(checkpointer=saver)
        graph.invoke(beginning(ENDLESS), config(RESUMED_RUN), durability="sync")


def resume(*, directory: Path, steps: int) -> None:
    """Time a new process from opening the database to the first fresh superstep."""
    interruption.measure_resume(rows=steps)
    with SqliteSaver.from_conn_string(database_in(directory)) as saver:
        graph = looping(Progress, travel, more_wanted).compile(checkpointer=saver)
        assert graph.get_state(config(RESUMED_RUN)).values["taken"] >= steps
        graph.invoke(None, config(RESUMED_RUN), durability="sync")


def memory(*, directory: Path, first_step: int, last_step: int) -> dict[str, float]:
    """Report what a live thread holds per completed superstep, and the process before it."""
    held: dict[int, int] = {}

    def wander(state: Progress) -> dict[str, Any]:
        if state["taken"] + 1 in {first_step, last_step}:
            held[state["taken"] + 1] = resident_bytes()
        return search_flights(state)

    with SqliteSaver.from_conn_string(database_in(directory)) as saver:
        graph = looping(Progress, wander, more_wanted).compile(checkpointer=saver)
        graph.invoke(beginning(WARM_UP_STEPS), config("warm-up"), durability="sync")
        at_rest = resident_bytes()
        graph.invoke(beginning(last_step), config("measured"), durability="sync")
    return {
        "at_rest": at_rest,
        "per_1000": (held[last_step] - held[first_step]) / (last_step - first_step) * 1000,
    }


def looping(state_type: type, node: Callable[..., Any], route: Callable[[Any], str]) -> StateGraph[Any]:
    """Return a graph of one node that is taken again until `route` ends it."""
    graph = StateGraph(state_type)
    graph.add_node("answer", node)
    graph.add_edge(START, "answer")
    graph.add_conditional_edges("answer", route)
    return graph


def search_flights(state: Progress) -> dict[str, Any]:
    """Return a short result."""
    return {"taken": state["taken"] + 1, "found": RESULT}


def travel(state: Progress) -> dict[str, Any]:
    """Return a short result, unless this is where the process dies."""
    interruption.pass_through()
    return search_flights(state)


def more_wanted(state: Progress) -> str:
    """Take the node again until enough were taken."""
    return "answer" if state["taken"] < state["wanted"] else END


def beginning(wanted: int) -> Progress:
    """Return the state before the first superstep."""
    return {"taken": 0, "wanted": wanted, "found": ""}


def config(thread: str) -> Any:
    """Return the configuration of one thread, without a limit of supersteps."""
    return {"configurable": {"thread_id": thread}, "recursion_limit": ENDLESS}


def database_in(directory: Path) -> str:
    """Return the path of the SQLite file."""
    return str(directory / "langgraph.sqlite")
