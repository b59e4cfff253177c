"""A loop over the client of Anthropic that knows nothing of perdure: async, its tools are plain functions."""

import asyncio
import sys

from anthropic import AsyncAnthropic

from errand import act


async def look(what: str) -> str:
    return act("look", what)


async def send(to: str) -> str:
    return act("send", to)


async def pay(cents: int) -> str:
    return act("pay", cents)


FUNCTIONS = {"look": look, "send": send, "pay": pay}
ASKED = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 1000,
    "tools": [{"name": name, "input_schema": {"type": "object"}} for name in FUNCTIONS],
}


async def perform(use) -> dict:
    said = await FUNCTIONS[use.name](**use.input)
    return {"type": "tool_result", "tool_use_id": use.id, "content": said}


async def ask(client: AsyncAnthropic, messages: list):
    if "streamed" not in sys.argv:
        return await client.messages.create(messages=messages, **ASKED)
    async with client.messages.stream(messages=messages, **ASKED) as stream:
        return await stream.get_final_message()


async def main() -> None:
    client = AsyncAnthropic()
    messages: list = [{"role": "user", "content": "Do it."}]
    while (answer := await ask(client, messages)).stop_reason == "tool_use":
        uses = [block for block in answer.content if block.type == "tool_use"]
        messages.append({"role": "assistant", "content": [block.model_dump() for block in answer.content]})
        if "parallel" in sys.argv:
            results = await asyncio.gather(*map(perform, uses))
        else:
            results = [await perform(use) for use in uses]
        messages.append({"role": "user", "content": results})
    print("".join(block.text for block in answer.content))


asyncio.run(main())
