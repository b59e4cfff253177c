"""A crew of CrewAI that knows nothing of perdure."""

import os

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false")

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from errand import act


@tool("look")
def look(what: str) -> str:
    """Look at something."""
    return act("look", what)


@tool("send")
def send(to: str) -> str:
    """Send a letter."""
    return act("send", to)


@tool("pay")
def pay(cents: int) -> str:
    """Pay somebody."""
    return act("pay", cents)


llm = LLM(model="openai/gpt-5", base_url=os.environ["OPENAI_BASE_URL"], api_key="none")
agent = Agent(role="assistant", goal="Do it.", backstory="Quick.", llm=llm, tools=[look, send, pay])
task = Task(description="Do it.", expected_output="That it is done.", agent=agent)
print(Crew(agents=[agent], tasks=[task], verbose=False).kickoff())
