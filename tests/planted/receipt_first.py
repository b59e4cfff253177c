"""Bug: the receipt of an effect is recorded before its body is performed, with what it is expected to return."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from perdure.engine import effect
from perdure.engine.call import Prepared
from perdure.engine.drive import Operation
from tests.planted.soil import replace

EXPECTED: Final = "done"


def record_then_perform(
    prepared: Prepared[effect.EffectSpec], attempt: int, key_at: float, *, forgiven: int, since: float
) -> Generator[Operation, Any, Any]:
    yield from effect._intend(prepared, attempt, key_at)  # noqa: SLF001
    yield from effect._confirm(prepared, EXPECTED, attempt=attempt, seconds=0.0)  # noqa: SLF001
    return (yield effect._performance(prepared, prepared.spec, attempt))  # noqa: SLF001


replace(effect, "_perform", record_then_perform)
