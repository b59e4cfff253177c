"""Every observable event as a record, and the list of those who listen.

Subscribers are called in the thread where the event happened, after it was committed. One that raises does not disturb
the run: its error is shown once on standard error and the subscriber is dropped.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable


class Event(Struct, frozen=True):
    """Something that happened to a run."""

    run_id: str
    run_name: str


class StoreOpened(Struct, frozen=True):
    """A store was opened by this process for the first time."""

    location: str
    created: bool


class RunStarted(Event, frozen=True):
    """A new run was accepted: its first record is committed."""

    agent: str
    location: str


class RunResumed(Event, frozen=True):
    """A run goes on where it stopped."""

    agent: str
    steps: int
    saved_seconds: float
    delivery: int
    before: str


class RunPassedOver(Event, frozen=True):
    """An unfinished run of the same agent and arguments was too old to be resumed unasked."""

    age_seconds: float


class RunBeside(Event, frozen=True):
    """The same call is being executed by another process already; this one is a run of its own."""

    holder: str


class StepCompleted(Event, frozen=True):
    """A step's result was committed."""

    number: int
    key: str
    step: str
    kind: str
    seconds: float
    attempt: int
    failed: bool


class AttemptFailed(Event, frozen=True):
    """An attempt failed and another will follow."""

    step: str
    attempt: int
    error: str
    next_in_seconds: float


class IntentRecorded(Event, frozen=True):
    """An effect is about to be performed."""

    number: int
    step: str
    attempt: int


class DoubtFound(Event, frozen=True):
    """An effect was started and never confirmed."""

    step: str
    why: str


class DoubtSettled(Event, frozen=True):
    """A verdict was recorded for an effect in doubt."""

    step: str
    outcome: str
    by: str


class RunEnded(Event, frozen=True):
    """A run reached an outcome or a pause."""

    state: str
    reason: str
    steps: int


Observable = Event | StoreOpened

_subscribers: list[Callable[[Observable], None]] = []


def subscribe(listener: Callable[[Observable], None]) -> Callable[[], None]:
    """Call `listener` with every event from now on; the returned function ends that."""
    _subscribers.append(listener)

    def unsubscribe() -> None:
        if listener in _subscribers:
            _subscribers.remove(listener)

    return unsubscribe


def has_subscribers() -> bool:
    """Whether building an event is worth its while."""
    return bool(_subscribers)


def publish(event: Observable) -> None:
    """Tell every subscriber."""
    for listener in tuple(_subscribers):
        try:
            listener(event)
        except Exception:  # noqa: BLE001 - an observer must never disturb the run it observes
            _subscribers.remove(listener)
            sys.stderr.write(f"perdure: a subscriber failed and was dropped\n{traceback.format_exc()}")
