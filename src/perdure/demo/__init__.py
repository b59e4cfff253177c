"""The agents of `perdure demo`, one module for each scenario. They are agents like any other.

`python -m perdure.demo SCENARIO …` runs one in a process of its own, which is killed where the scenario says so.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from perdure.demo.crash import NAME, STEPS, report_customers

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NAME", "SCENARIOS", "STEPS", "agent_of", "agents", "described", "report_customers", "steps_of"]

SCENARIOS: Final = ("crash", "approval", "effect", "fleet")
_MODEL_CALLS: Final = frozenset(
    {"outline", "plan", "read_complaint", "read_invoice", "summarise", "write_letter", "write_part", "write_report"}
)


def agent_of(name: str) -> Callable[..., Any] | None:
    """The demo's agent of this name; None where the demo has none."""
    if name == NAME:
        return report_customers
    scenario = name.removeprefix(f"{NAME}.")
    if scenario == name or scenario not in SCENARIOS:
        return None
    agent: Callable[..., Any] = importlib.import_module(f"perdure.demo.{scenario}").AGENT
    return agent


def agents() -> dict[str, Callable[..., Any]]:
    """Every agent of the demos, by its name."""
    names = [NAME, *(f"{NAME}.{scenario}" for scenario in SCENARIOS[1:])]
    return {name: agent for name in names if (agent := agent_of(name)) is not None}


def steps_of(name: str) -> int:
    """How many steps a run of this agent takes; 0 where the demo has no such agent."""
    agent = agent_of(name)
    return int(getattr(importlib.import_module(agent.__module__), "STEPS", 0)) if agent is not None else 0


def described(step: str, kind: str) -> tuple[str, str]:
    """How a step is shown: its kind; a call of the model says by itself what it took."""
    return "model" if step in _MODEL_CALLS else kind, ""
