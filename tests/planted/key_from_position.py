"""Bug: the key of an effect is made from where the run stands in this process, not from which call it is."""

from __future__ import annotations

from perdure.engine.active import Active, made_key
from tests.planted.soil import replace


def position_key(self: Active, step_key: str) -> str:
    return made_key(self.row.run_id, f"after {len(self.journal.deliveries)} deliveries: {step_key}")


replace(Active, "effect_key", position_key)
