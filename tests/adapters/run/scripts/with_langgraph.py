"""A graph of LangGraph that knows nothing of perdure: an agent with tools, run as a whole or streamed."""

import sys

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from errand import act

SEEN: list[str] = []


@tool
def look(what: str) -> str:
    """Look at something."""
    SEEN.append(what)
    return act("look", what)


@tool
def send(to: str) -> str:
    """Send a letter."""
    return act("send", to)


@tool
def pay(cents: int) -> str:
    """Pay somebody."""
    return act("pay", cents)


TOOLS = [look, send, pay]
model = ChatOpenAI(model="gpt-5", streaming="streamed" in sys.argv).bind_tools(TOOLS)


def ask(state: MessagesState) -> dict[str, list[object]]:
    return {"messages": [model.invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("ask", ask)
graph.add_node("tools", ToolNode(TOOLS))
graph.add_edge(START, "ask")
graph.add_conditional_edges("ask", tools_condition)
graph.add_edge("tools", "ask")
compiled = graph.compile()
given = {"messages": [("user", "Do it.")]}
if "streamed" in sys.argv:
    for _mode, state in compiled.stream(given, stream_mode=["messages", "values"]):
        last = state
else:
    last = compiled.invoke(given)
print(last["messages"][-1].content, sorted(SEEN))
