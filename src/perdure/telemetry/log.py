"""One structured line for each event, for logs that programs read."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import clock

if TYPE_CHECKING:
    from perdure.events import Observable


def line_of(event: Observable) -> str:
    """An event as one JSON object: when, what, and everything it says."""
    said: dict[str, Any] = {"at": clock.instant(clock.wall_seconds()).isoformat(timespec="milliseconds")}
    said["event"] = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
    return msgspec.json.encode(said | msgspec.structs.asdict(event)).decode()


def write_line(event: Observable) -> None:
    """Show an event on standard error; a closed stream never disturbs the run."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{line_of(event)}\n")
        sys.stderr.flush()
