"""A loop over litellm that knows nothing of perdure; its tools are plain functions."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm

from errand import act


def look(what: str) -> str:
    return act("look", what)


def send(to: str) -> str:
    return act("send", to)


def pay(cents: int) -> str:
    return act("pay", cents)


FUNCTIONS = {"look": look, "send": send, "pay": pay}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in FUNCTIONS]


def perform(call: dict) -> dict:
    said = FUNCTIONS[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
    return {"role": "tool", "tool_call_id": call["id"], "content": said}


def ask(messages: list) -> dict:
    if "streamed" not in sys.argv:
        answer = litellm.completion(model="openai/gpt-5", messages=messages, tools=TOOLS)
    else:
        chunks = list(litellm.completion(model="openai/gpt-5", messages=messages, tools=TOOLS, stream=True))
        answer = litellm.stream_chunk_builder(chunks)
    said = answer.choices[0].message.model_dump(exclude_none=True)
    return {name: said[name] for name in ("role", "content", "tool_calls") if said.get(name)}


messages: list = [{"role": "user", "content": "Do it."}]
while True:
    messages.append(ask(messages))
    calls = messages[-1].get("tool_calls")
    if not calls:
        break
    if "parallel" in sys.argv:
        with ThreadPoolExecutor(3) as pool:
            messages += pool.map(perform, calls)
    else:
        messages += [perform(call) for call in calls]
print(messages[-1]["content"])
