"""Graphs for the tests of savers."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt


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
