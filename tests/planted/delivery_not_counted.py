"""Bug: a delivery is not counted when the run is claimed, so that one that kills its workers is handed out for ever."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.records import Run, Worker, sealed_run
from perdure.store.lease import Claimed, Presence, claim
from perdure.store.memory import store as memory
from perdure.store.postgres import store as postgres
from perdure.store.protocol import Terms
from perdure.store.sqlite import store as sqlite
from tests.planted.soil import replace


def claim_uncounted(
    run: Run, claimant: Worker, holder: Worker | None, presence: Presence, terms: Terms, **more: Any
) -> Claimed:
    claimed = claim(run, claimant, holder, presence, terms, **more)
    forgetful = sealed_run(msgspec.structs.replace(claimed.run, deliveries=run.deliveries))
    return msgspec.structs.replace(claimed, run=forgetful)


for module in (memory, sqlite, postgres):
    replace(module, "claim", claim_uncounted)
