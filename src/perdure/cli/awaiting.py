"""A command that waits for a store on a server says so, and that it is back: silence would look like a fault."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from perdure import events
from perdure.cli.mode import mode
from perdure.cli.screen import tell
from perdure.telemetry.terminal import describe

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS: Final = (events.StoreAwaited, events.StoreReached)


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Show these lines while a command is at work."""
    end = events.subscribe(_tell, *_KINDS)
    try:
        yield
    finally:
        end()


def _tell(event: events.Observable) -> None:
    if not mode.logs_events:
        tell(f"perdure: {describe(event)}")
