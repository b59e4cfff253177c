"""Threads for the tests of savers: checkpoints with a conversation that grows, as LangGraph would put them."""

from __future__ import annotations

import base64
import random
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint
from langgraph.checkpoint.base.id import uuid6


def config(thread: str, *, namespace: str = "", checkpoint_id: str = "") -> RunnableConfig:
    """How LangGraph names a thread, or a checkpoint of it."""
    given = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": {**given, "checkpoint_id": checkpoint_id} if checkpoint_id else given}


def checkpoint(step: int, **values: Any) -> Checkpoint:
    """A checkpoint with these channels."""
    return Checkpoint(
        v=4,
        id=str(uuid6(clock_seq=step)),
        ts="2026-01-01T00:00:00+00:00",
        channel_values=values,
        channel_versions=dict.fromkeys(values, step + 1),
        versions_seen={"node": dict.fromkeys(values, step)},
        updated_channels=list(values),
    )


def message(number: int, *, characters: int = 200) -> BaseMessage:
    """The message with this number, the same one in every process."""
    text = base64.b64encode(random.Random(number).randbytes(characters)).decode()[:characters]
    return (AIMessage if number % 2 else HumanMessage)(content=text, id=f"message-{number}")


def put(saver: BaseCheckpointSaver[Any], above: RunnableConfig, step: int, **values: Any) -> RunnableConfig:
    """Put one checkpoint below another."""
    made = checkpoint(step, **values)
    return saver.put(above, made, {"source": "loop", "step": step, "parents": {}}, made["channel_versions"])


def grow(saver: BaseCheckpointSaver[Any], thread: str, *, steps: int, characters: int = 200) -> list[RunnableConfig]:
    """Put so many checkpoints, each with one message more than the one before."""
    messages: list[BaseMessage] = []
    configs: list[RunnableConfig] = []
    for step in range(steps):
        messages = [*messages, message(step, characters=characters)]
        configs.append(put(saver, configs[-1] if configs else config(thread), step, messages=messages, topic="flights"))
    return configs


def values(saver: BaseCheckpointSaver[Any], named: RunnableConfig) -> dict[str, Any]:
    """The channels of a checkpoint that must be there."""
    found = saver.get_tuple(named)
    assert found is not None
    return found.checkpoint["channel_values"]
