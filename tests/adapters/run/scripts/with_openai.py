"""A loop over the client of OpenAI that knows nothing of perdure; its tools are plain functions."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

from errand import act


def look(what: str) -> str:
    return act("look", what)


def send(to: str) -> str:
    return act("send", to)


def pay(cents: int) -> str:
    return act("pay", cents)


FUNCTIONS = {"look": look, "send": send, "pay": pay}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in FUNCTIONS]
client = OpenAI()


def perform(call) -> dict:
    said = FUNCTIONS[call.function.name](**json.loads(call.function.arguments))
    return {"role": "tool", "tool_call_id": call.id, "content": said}


def ask(messages: list):
    if "streamed" not in sys.argv:
        return client.chat.completions.create(model="gpt-5", messages=messages, tools=TOOLS).choices[0].message
    with client.chat.completions.stream(model="gpt-5", messages=messages, tools=TOOLS) as stream:
        return stream.get_final_completion().choices[0].message


messages: list = [{"role": "user", "content": "Do it."}]
while calls := (answer := ask(messages)).tool_calls:
    messages.append(answer.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
    if "parallel" in sys.argv:
        with ThreadPoolExecutor(3) as pool:
            messages += pool.map(perform, calls)
    else:
        messages += [perform(call) for call in calls]
print(answer.content)
