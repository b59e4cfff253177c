"""Bug: the UPDATE that gives a run to a claimant has no predicate: who holds it, and lives, is not asked."""

from __future__ import annotations

from typing import Any

from perdure.records import Run, Worker
from perdure.store.lease import Claimed, Presence, claim
from perdure.store.memory import store as memory
from perdure.store.postgres import store as postgres
from perdure.store.protocol import Terms
from perdure.store.sqlite import store as sqlite
from tests.planted.soil import replace


def claim_anyway(
    run: Run, claimant: Worker, holder: Worker | None, presence: Presence, terms: Terms, **more: Any
) -> Claimed:
    blind = Presence.STALLED if presence is Presence.ALIVE else presence
    return claim(run, claimant, holder, blind, terms, **more)


for module in (memory, sqlite, postgres):
    replace(module, "claim", claim_anyway)
