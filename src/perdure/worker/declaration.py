"""What a worker's code says of queues and schedules, as one word, to tell whether it was said before.

The newest declaration counts. A worker whose process died, and was started anew by its parent with the same code, has
nothing new to say: what others declared since stands.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from perdure import queues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.engine.agent import AgentSpec


def declaration_of(agents: Mapping[str, AgentSpec]) -> str:
    """The same for the same limits and schedules, and another for others."""
    limits = sorted(queues.declared(), key=lambda queue: queue.name)
    rows = sorted((row for spec in agents.values() for row in spec.schedules), key=lambda row: row.name)
    return hashlib.sha256(msgspec.json.encode([limits, rows])).hexdigest()[:32]
