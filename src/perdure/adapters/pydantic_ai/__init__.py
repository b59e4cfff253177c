"""Pydantic AI inside a run: `PerdureDurability` makes model requests steps and tool calls effects.

| module | what it owns |
|---|---|
| `durability` | the capability that an agent is given |
| `backend` | operations of Pydantic AI as calls of the run; dependencies around tools; usage |
| `identity` | keys, and what must be equal for a recorded answer to be the answer |
| `failures` | failures of a model as records, and back |
"""

from __future__ import annotations

from perdure.adapters.pydantic_ai.durability import PerdureDurability

__all__ = ["PerdureDurability"]
