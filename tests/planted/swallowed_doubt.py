"""Bug: an effect whose outcome is not known is performed again, as if it had not begun."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from perdure.engine import effect
from perdure.engine.call import Prepared
from perdure.engine.drive import Operation, Perform
from perdure.engine.settle import Again
from perdure.records import Record
from tests.planted.soil import replace


def go_on(
    prepared: Prepared[effect.EffectSpec],
    intent: Record | None,
    *,
    attempt: int,
    why: str,
    performance: Perform | None = None,
) -> Generator[Operation, Any, Again]:
    yield from ()
    return Again(attempt + 1)


replace(effect, "settle", go_on)
