"""The OpenAI Agents SDK inside a run: `run` and `run_streamed` in place of `Runner`, `PerdureSession` for histories.

| module | what it owns |
|---|---|
| `runner` | `run` and `run_streamed`; whether this version of the SDK has the seams |
| `model` | requests as steps, whole and streamed |
| `tools` | tool calls as effects, steps, or code of the agent; the context around them |
| `journaling` | what a `run` knows of its place, also inside tools that are agents |
| `records`, `failures` | answers, streams and failures as plain data, and back |
| `session`, `orphans` | histories in the store; what became of calls that a dead process left open |
"""

from __future__ import annotations

from perdure.adapters.openai_agents.runner import run, run_streamed
from perdure.adapters.openai_agents.session import PerdureSession

__all__ = ["PerdureSession", "run", "run_streamed"]
