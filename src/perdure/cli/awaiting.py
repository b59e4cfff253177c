"""A command that waits for a store on a server says so, and that it is back: silence would look like a fault."""

from __future__ import annotations

from typing import Final

from perdure import events
from perdure.cli.mode import mode
from perdure.cli.screen import tell
from perdure.telemetry.terminal import describe

_KINDS: Final = (events.StoreAwaited, events.StoreReached)


def install() -> None:
    """Show these lines from now on."""
    events.subscribe(_tell, *_KINDS)


def _tell(event: events.Observable) -> None:
    if not mode.logs_events:
        tell(f"perdure: {describe(event)}")
