"""Threads for the tests of savers: checkpoints with a conversation that grows, as LangGraph would put them."""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING, Any

from tests.adapters.lazily import Lazily

if TYPE_CHECKING:
    from langchain_core import messages
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint import base
else:
    base = Lazily("langgraph.checkpoint.base")
    messages = Lazily("langchain_core.messages")


STEPS = 3
"""Of a conversation in a process that may be killed."""


def config(thread: str, *, namespace: str = "", checkpoint_id: str = "") -> RunnableConfig:
    """How LangGraph names a thread, or a checkpoint of it."""
    given = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": {**given, "checkpoint_id": checkpoint_id} if checkpoint_id else given}


def checkpoint(step: int, **values: Any) -> base.Checkpoint:
    """A checkpoint with these channels."""
    return base.Checkpoint(
        v=4,
        id=str(base.id.uuid6(clock_seq=step)),
        ts="2026-01-01T00:00:00+00:00",
        channel_values=values,
        channel_versions=dict.fromkeys(values, step + 1),
        versions_seen={"node": dict.fromkeys(values, step)},
        updated_channels=list(values),
    )


def message(number: int, *, characters: int = 200) -> messages.BaseMessage:
    """The message with this number, the same one in every process."""
    text = base64.b64encode(random.Random(number).randbytes(characters)).decode()[:characters]
    return (messages.AIMessage if number % 2 else messages.HumanMessage)(content=text, id=f"message-{number}")


def put(saver: base.BaseCheckpointSaver[Any], above: RunnableConfig, step: int, **values: Any) -> RunnableConfig:
    """Put one checkpoint below another."""
    made = checkpoint(step, **values)
    return saver.put(above, made, {"source": "loop", "step": step, "parents": {}}, made["channel_versions"])


def grow(
    saver: base.BaseCheckpointSaver[Any], thread: str, *, steps: int, characters: int = 200
) -> list[RunnableConfig]:
    """Put so many checkpoints, each with one message more than the one before."""
    said: list[messages.BaseMessage] = []
    configs: list[RunnableConfig] = []
    for step in range(steps):
        said = [*said, message(step, characters=characters)]
        configs.append(put(saver, configs[-1] if configs else config(thread), step, messages=said, topic="flights"))
    return configs


def values(saver: base.BaseCheckpointSaver[Any], named: RunnableConfig) -> dict[str, Any]:
    """The channels of a checkpoint that must be there."""
    found = saver.get_tuple(named)
    assert found is not None
    return found.checkpoint["channel_values"]
