"""The agents of `perdure demo`, one module for each scenario. They are agents like any other.

`python -m perdure.demo SCENARIO …` runs one in a process of its own, which is killed where the scenario says so.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from perdure.demo.crash import NAME, STEPS, report_customers

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NAME", "SCENARIOS", "STEPS", "agent_of", "described", "report_customers"]

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


def described(step: str, kind: str) -> tuple[str, str]:
    """How a step is shown: its kind; a call of the model says by itself what it took."""
    return "model" if step in _MODEL_CALLS else kind, ""


def dollars_of(steps: Any) -> float:
    del steps
    return 0.0512
