"""Bug: a holder believes in its lease and never renews it."""

from __future__ import annotations

from perdure import clock
from perdure.engine.upkeep import Upkeep
from tests.planted.soil import replace


def believe(self: Upkeep) -> None:
    self.acknowledge(clock.boot_seconds())


replace(Upkeep, "_beat", believe)
