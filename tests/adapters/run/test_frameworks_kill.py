"""Scripts of every framework, unmodified: killed before and after every commit, and executed again until they are done.

One variant of each is killed inside its commits, too: what becomes of a commit itself is no matter of the framework.

A model request that was answered and recorded is not sent again, every tool acts once or is reported in doubt, and what
the script prints is what it prints without a kill.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure.testing.model_server import ModelServer, tool
from tests import summary
from tests.adapters.run.environments import python_of
from tests.adapters.run.trials import Trial, judge, loaded, uninterrupted
from tests.crash.nursery import Nursery
from tests.sampling import points


@dataclass(frozen=True)
class Framework:
    """A script, and the modules that it is quicker to load once."""

    name: str
    script: str
    modules: tuple[str, ...]
    answer: str = "all done"
    environment: str = ""
    """Of its own, where it does not go with the others."""
    variants: tuple[str, ...] = ("whole", "parallel", "streamed", "parallel streamed")

    @property
    def searched(self) -> str:
        """The variant that is killed inside its commits, too."""
        return self.variants[-1]


FRAMEWORKS = [
    Framework("OpenAI alone", "with_openai.py", ("openai",)),
    Framework("Anthropic alone", "with_anthropic.py", ("anthropic",)),
    Framework("OpenAI Agents", "with_openai_agents.py", ("agents", "openai")),
    Framework(
        "OpenAI Agents, responses", "with_openai_agents.py", ("agents", "openai"), variants=("parallel responses",)
    ),
    Framework("LangGraph", "with_langgraph.py", ("langgraph.graph", "langgraph.prebuilt", "langchain_openai")),
    Framework("LangChain", "with_langchain.py", ("langchain.agents", "langchain.tools", "langchain_openai")),
    Framework("Pydantic AI", "with_pydantic_ai.py", ("pydantic_ai", "pydantic_ai.models.openai")),
    Framework("MCP", "with_mcp.py", ("mcp", "mcp.client.stdio", "openai")),
]
LITELLM = ("litellm", "litellm.responses.mcp.litellm_proxy_mcp_handler")
ADK = (
    "google.adk.agents.llm_agent",
    "google.adk.auth.auth_preprocessor",
    "google.adk.flows.llm_flows.auto_flow",
    "google.adk.models.google_llm",
    "google.adk.runners",
    "google.adk.workflow._workflow",
    "google.genai",
)
HEAVY = [
    Framework("litellm", "with_litellm.py", LITELLM, environment="litellm"),
    Framework("Agent Framework", "with_agent_framework.py", ("agent_framework.openai",), environment="agent-framework"),
    Framework("Google ADK", "with_google_adk.py", ADK, environment="google-adk"),
    Framework("CrewAI", "with_crewai.py", ("crewai",), environment="crewai", variants=("whole", "parallel")),
]
SAMPLED = {
    "OpenAI alone": "parallel",
    "Anthropic alone": "parallel streamed",
    "OpenAI Agents": "parallel streamed",
    "LangGraph": "parallel",
    "Pydantic AI": "streamed",
    "MCP": "parallel",
}
SAMPLED_STRIDE = 45
AROUND = ("before:", "after:")
"""The sides of a commit on which a script is killed; inside it, the store decides."""


def cases() -> Iterator[object]:
    """Every variant of every framework in the exhaustive tests; one of each otherwise, at a few moments."""
    for framework in (*FRAMEWORKS, *HEAVY):
        for variant in framework.variants:
            yield pytest.param(
                framework, variant, 1, marks=pytest.mark.exhaustive, id=f"{framework.name}-{variant}-every"
            )
        if framework.name in SAMPLED:
            yield pytest.param(framework, SAMPLED[framework.name], SAMPLED_STRIDE, id=f"{framework.name}-sampled")


@pytest.mark.parametrize(("framework", "variant", "stride"), list(cases()))
def test_killed_anywhere_a_script_asks_no_answered_question_again_and_no_tool_acts_twice(
    tmp_path: Path, together: Nursery, framework: Framework, variant: str, stride: int
) -> None:
    arguments = variant.split()
    is_alone = stride == 1
    alone = loaded(*framework.modules, python=python_of(framework.environment)) if is_alone else nullcontext(together)
    with ModelServer() as model, alone as nursery:
        write(model, is_parallel="parallel" in arguments)
        whole = uninterrupted(trial(tmp_path / "whole", nursery, model, framework, arguments))
        assert whole.out.startswith(framework.answer), whole.out
        assert whole.requests == (3 if "parallel" in arguments else 4)
        is_searched = variant == framework.searched
        moments = [moment for moment in whole.moments if is_searched or moment.startswith(AROUND)]
        chosen, doubted = points(moments, stride), 0
        for number, moment in enumerate(chosen):
            one = trial(tmp_path / str(number), nursery, model, framework, arguments)
            judge(one, whole, at=moment)
            doubted += len(one.doubted)
    summary.note(
        framework.name, trials=len(chosen), landed={"kills": len(chosen)}, planned=len(chosen), in_doubt=doubted
    )
    assert len(chosen) > 1


def trial(folder: Path, nursery: Nursery, model: ModelServer, framework: Framework, arguments: list[str]) -> Trial:
    return Trial(folder, nursery, model, framework.script, arguments)


def write(model: ModelServer, *, is_parallel: bool) -> None:
    """What the model says: one tool at a time, or several at once."""
    if is_parallel:
        model.calls(tool("look", what="a"), tool("send", to="ada"), tool("look", what="b"))
        model.calls(tool("pay", cents=900), tool("send", to="bob"))
    else:
        model.calls("look", what="a").calls("send", to="ada").calls("pay", cents=900)
    model.says(["all ", "done"])
