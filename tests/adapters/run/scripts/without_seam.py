"""An agent of the OpenAI Agents SDK in a version of which perdure knows nothing: its private functions have moved."""

import asyncio
import importlib.util
import sys
from importlib.machinery import SourceFileLoader

IN_FRONT = "in front" in sys.argv
"""Whether nothing has moved, and only the one who finds the modules is another."""


class Moved(SourceFileLoader):
    """Gives the private functions of `agents.tool` other names, as a new version might."""

    def get_data(self, path: str) -> bytes:
        source = super().get_data(path)
        return source if IN_FRONT else source.replace(b"invoke_function_tool", b"call_function_tool")

    def path_stats(self, path: str) -> dict:
        raise OSError(path)  # never what was compiled before


class Finder:
    """Finds those modules of the SDK that use them."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name not in ("agents.tool", "agents.run_internal.tool_execution") or path is None:
            return None
        file = f"{next(iter(path))}/{name.rpartition('.')[2]}.py"
        return importlib.util.spec_from_file_location(name, file, loader=Moved(name, file))


sys.meta_path.insert(0 if IN_FRONT else len(sys.meta_path) - 1, Finder())

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from errand import act

set_tracing_disabled(True)


@function_tool(name_override="post" if IN_FRONT else "send")
async def send(to: str) -> str:
    """Send a letter."""
    return act("send", to)


async def main() -> None:
    model = OpenAIChatCompletionsModel("gpt-5", openai_client=AsyncOpenAI())
    agent = Agent(name="assistant", model=model, tools=[send])
    print((await Runner.run(agent, "Do it.")).final_output)


asyncio.run(main())
