"""What follows from the end of a worker's process: another at once, later or once the code changed, or none. Pure."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure.errors import StoreError
from perdure.settings import Settings
from perdure.telemetry.text import duration
from perdure.worker.death import exit_code_of

if TYPE_CHECKING:
    from perdure.worker.child import Child

GOOD_WHILE_SECONDS: Final = 60.0
"""A worker that lived so long, or finished a run, has not died at once: the pauses before new ones begin anew."""

LONGEST_PAUSE_SECONDS: Final = 30.0
LONGEST_BUSY_PAUSE_SECONDS: Final = 2.0
"""The longest where the dead one had taken a run: one that kills is parked soon, and others should not wait for it."""

_FIRST_PAUSE_SECONDS: Final = 0.25

BEGINS: Final = "it is being started"
LOADS: Final = "it loads its code"
ENDED: Final = "it has ended"
"""Why a worker is not ready."""


class Plan(Struct, frozen=True):
    """How to treat a worker."""

    settings: Settings
    grace_seconds: float = 30.0
    reload: bool = False
    code: str = ""
    """What it loads, as a person calls it."""


class Again(Struct, frozen=True):
    """Another worker is to be started, after so many seconds."""

    seconds: float = 0.0


class AwaitChange(Struct, frozen=True):
    """Another worker is to be started once the code has changed."""


class Leave(Struct, frozen=True):
    """No other worker is to be started."""

    exit_code: int


def pause_seconds(deaths: int, *, is_busy: bool = False) -> float:
    """How long to wait after so many deaths in a row: the first costs nothing."""
    longest = LONGEST_BUSY_PAUSE_SECONDS if is_busy else LONGEST_PAUSE_SECONDS
    return min(longest, _FIRST_PAUSE_SECONDS * 2.0 ** min(deaths - 2, 10)) if deaths > 1 else 0.0


def decide(
    child: Child, status: int, *, deaths: int, asked: bool, reloading: bool, plan: Plan
) -> Again | AwaitChange | Leave:
    """What follows from the end of a worker; `deaths` so many have died in a row, this one included."""
    code = 0 if child.ended is not None and os.WIFSIGNALED(status) else exit_code_of(status)
    if asked:
        has_only_loaded = os.WIFSIGNALED(status) and not child.is_ready
        return Leave(0 if has_only_loaded else code)
    if reloading:
        return Again()
    if child.ended is not None:
        return Leave(code)  # somebody asked the worker itself
    if child.is_ready:
        return Again(pause_seconds(deaths, is_busy=child.runs > 0))
    if deaths and (code == StoreError.exit_code or os.WIFSIGNALED(status)):
        return Again(pause_seconds(deaths))  # one like it has begun before: its store is away, or somebody killed it
    if code == StoreError.exit_code:
        return Leave(code)
    return AwaitChange() if plan.reload else Leave(code)


def why_none(child: Child, decision: Again | AwaitChange | Leave) -> str:
    """Why there is no worker while this is done."""
    match decision:
        case Leave():
            return ENDED
        case AwaitChange():
            return "its code cannot be loaded; it is started anew when that has changed"
        case Again(seconds) if seconds:
            how = "died" if child.is_ready else "could not begin"
            return f"it {how}; another starts {duration(seconds)} after that"
        case Again():
            return BEGINS
