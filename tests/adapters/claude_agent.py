"""An agent of the Claude Agent SDK in a process that can be killed anywhere; each tool leaves a line in a log outside.

The tool is a shell script, run by the SDK's own program. CRASH_AT may name a moment in there: `begun:send ada` or
`performed:send ada`; the process of the agent is killed then.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage

import perdure
from perdure.adapters.claude_agent import PerdureSessionStore
from tests.adapters.recovery import RUN_ID, end
from tests.crash import killer

SCRIPT = """
from perdure.testing.model_server import answer, tool

WANTED = ("send ada", "send bob", "note done")


def next_wish(conversation):
    calls = {call.id: call for message in conversation.messages for call in message.calls}
    results = [result for message in conversation.messages for result in message.results]
    answered = {calls[result.id].arguments["command"] for result in results if "was not started" not in result.text}
    left = [what for what in WANTED if f"sh tool.sh {what}" not in answered]
    return answer("", tool("Bash", command=f"sh tool.sh {left[0]}")) if left else answer("All done.")


def script(model):
    model.when(lambda conversation: True).replies(next_wish)
"""
TOOL = """
[ "$CRASH_AT" = "begun:$*" ] && kill -9 "$AGENT_PID"
echo "$*" >> outside
[ "$CRASH_AT" = "performed:$*" ] && kill -9 "$AGENT_PID"
echo "$*: done"
"""


class Trapped(PerdureSessionStore):
    """Passes a moment before and after each thing that it keeps."""

    async def _write(self, act: Any) -> Any:
        name = getattr(getattr(act, "func", act), "__name__", "")
        killer.moment("before", name)
        answer = await super()._write(act)
        killer.moment("after", name)
        return answer


@perdure.step
async def review(session_id: str, wish: str) -> str:
    told = ""
    environment = {"CLAUDE_CONFIG_DIR": os.environ["SETTINGS"], "IS_SANDBOX": "1", "DISABLE_TELEMETRY": "1"}
    options = ClaudeAgentOptions(
        model=os.environ["MODEL"],
        allowed_tools=["Bash"],
        permission_mode="bypassPermissions",
        setting_sources=[],
        env={**environment, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    )
    with Trapped() as sessions:
        async for message in sessions.query(wish, session_id=session_id, options=options):
            if isinstance(message, ResultMessage):
                told = message.result or ""
    return told


@perdure.agent
async def clerk(wish: str) -> str:
    return await review(str(perdure.uuid()), wish)


def main() -> None:
    os.environ.update(AGENT_PID=str(os.getpid()), SETTINGS=str(Path("settings").absolute()))
    Path("tool.sh").write_text(TOOL)
    killer.arm()
    print(perdure.run(clerk, "Write to Ada and Bob.", run_id=RUN_ID))
    end()
