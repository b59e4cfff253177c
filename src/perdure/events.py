"""Every observable event as a record, and the list of those who listen.

Subscribers are called in the thread where the event happened, after it was committed. One that raises does not disturb
the run: its error is shown once on standard error and the subscriber is dropped.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Event(Struct, frozen=True):
    """Something that happened to a run."""

    run_id: str
    run_name: str


class StoreOpened(Struct, frozen=True):
    """A store was opened by this process for the first time."""

    location: str
    created: bool


class WorkerStarted(Struct, frozen=True):
    """A worker looks for runs of these agents."""

    worker_id: str
    agents: tuple[str, ...]
    concurrency: int
    version: str = ""
    queues: tuple[str, ...] = ()
    """Of these queues alone; of all where none is named."""


class WorkerDraining(Struct, frozen=True):
    """A worker takes nothing more, and stops what moves at its next step."""

    worker_id: str
    runs: int


class WorkerStopped(Struct, frozen=True):
    """A worker has drained: it holds nothing any more."""

    worker_id: str


class WorkerDied(Struct, frozen=True):
    """A worker's process ended without being asked to; another is started in so many seconds, or none."""

    worker_id: str
    process: int
    cause: str
    seconds: float | None


class CodeChanged(Struct, frozen=True):
    """Files that a worker had loaded have changed: it drains, and another is started with the new code."""

    files: tuple[str, ...]


class ChangeAwaited(Struct, frozen=True):
    """The code cannot be loaded; a worker is started once it has changed."""

    code: str


class StoreMissed(Struct, frozen=True):
    """A worker cannot use its store, since so many seconds; it looks again, after ever longer pauses."""

    worker_id: str
    error: str
    seconds: float = 0.0


class StoreFound(Struct, frozen=True):
    """A worker can use the store again that it missed for so many seconds."""

    worker_id: str
    seconds: float


class StoreAwaited(Struct, frozen=True):
    """The store cannot be reached; it is waited for, for so many seconds more. Nothing is performed meanwhile."""

    location: str
    error: str
    seconds: float


class StoreReached(Struct, frozen=True):
    """A store that was waited for has answered; runs go on."""

    location: str


class ScheduleDeclared(Struct, frozen=True):
    """A worker's code says of a schedule what the store did not: from now on everybody goes by this."""

    schedule: str
    cron: str
    timezone: str
    next_at: float


class ScheduleWithdrawn(Struct, frozen=True):
    """A worker's code has no such schedule of its agent any more: it has no ticks from now on."""

    schedule: str


class TicksSkipped(Struct, frozen=True):
    """Ticks of a schedule passed while no worker was there, and by its `catch_up` they get no run."""

    schedule: str
    since_at: float
    until_at: float


class TickRefused(Struct, frozen=True):
    """A worker cannot start the run of a tick, and leaves it to others; it tries again after a while."""

    schedule: str
    error: str


class TickStarted(Event, frozen=True):
    """A worker has accepted the run of a tick; so many seconds after it was due."""

    schedule: str
    tick_at: float
    after_seconds: float


class RunTaken(Event, frozen=True):
    """A worker has claimed a run, so many seconds after it could go on.

    That is since it was accepted, since what it waited for has come, or since the last sign of whoever had it.
    """

    agent: str
    delivery: int
    after_seconds: float


class RunRefused(Event, frozen=True):
    """A worker could not take a run that seemed ready; it is left alone for a while."""

    error: str


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
    saved_tokens: int = 0
    saved_dollars: float = 0.0


class RunPassedOver(Event, frozen=True):
    """An unfinished run of the same agent and arguments was too old to be resumed unasked."""

    age_seconds: float


class DoubtLeft(Event, frozen=True):
    """An earlier run of the same agent and arguments was cancelled with an effect in doubt: it may have happened."""

    effect: str


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
    tokens: int = 0
    dollars: float = 0.0


class AttemptFailed(Event, frozen=True):
    """An attempt failed and another will follow."""

    step: str
    attempt: int
    error: str
    next_in_seconds: float
    key: str = ""


class IntentRecorded(Event, frozen=True):
    """An effect is about to be performed."""

    number: int
    step: str
    attempt: int
    key: str = ""


class DoubtFound(Event, frozen=True):
    """An effect was started and never confirmed."""

    step: str
    why: str
    key: str = ""


class DoubtPending(Event, frozen=True):
    """A check found nothing, but a request on its way may still land: it is asked again later."""

    step: str
    seconds: float


class DoubtSettled(Event, frozen=True):
    """A verdict was recorded for an effect in doubt."""

    step: str
    outcome: str
    by: str
    key: str = ""


class WaitOpened(Event, frozen=True):
    """A run waits for a person, a signal, a time or a child."""

    step: str
    reason: str
    shown: str
    due_at: float
    key: str = ""


class RunLeft(Event, frozen=True):
    """A run that this process started left memory, and goes on by itself once somebody answers or something comes."""

    reason: str
    words: str
    hint: str


class QuestionDue(Event, frozen=True):
    """A question is still open at the time of its reminder or of its escalation; `to` is who should hear of it."""

    about: str
    question: str
    to: str


class Progressed(Event, frozen=True):
    """An agent noted how far it is."""

    done: float
    total: float
    text: str


class MapAdvanced(Event, frozen=True):
    """So many items of a map are committed; `total` is None where the source does not know its length.

    `rate` is in items a second and `seconds` since this process began with the map; `stage` is "resumed" where items
    were done before, "ended" once all are.
    """

    step: str
    done: int
    total: int | None
    failed: int
    rate: float
    seconds: float
    stage: str


class ResourceSettled(Event, frozen=True):
    """A resource was not as the run left it: it was accepted as it is now, or recreated as it was."""

    words: str
    outcome: str


class RunEnded(Event, frozen=True):
    """A run reached an outcome or a pause."""

    state: str
    reason: str
    steps: int


Observable = (
    Event
    | StoreOpened
    | StoreAwaited
    | StoreReached
    | StoreMissed
    | StoreFound
    | WorkerStarted
    | WorkerDraining
    | WorkerStopped
    | WorkerDied
    | CodeChanged
    | ChangeAwaited
    | ScheduleDeclared
    | ScheduleWithdrawn
    | TicksSkipped
    | TickRefused
)

_subscribers: dict[Callable[[Observable], None], frozenset[type]] = {}
"""Who listens, and to which kinds of event; to all where none is named."""


def subscribe(listener: Callable[[Observable], None], *kinds: type[Observable]) -> Callable[[], None]:
    """Call `listener` with every event from now on, or those of the named kinds; the returned function ends that."""
    _subscribers[listener] = frozenset(kinds)

    def unsubscribe() -> None:
        _subscribers.pop(listener, None)

    return unsubscribe


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Nobody is told of what happens meanwhile: it is tried out, and does not happen to a run."""
    before = dict(_subscribers)
    _subscribers.clear()
    try:
        yield
    finally:
        _subscribers.clear()
        _subscribers.update(before)


def is_wanted(kind: type[Observable]) -> bool:
    """Whether building an event of this kind is worth its while."""
    for kinds in tuple(_subscribers.values()):  # noqa: SIM110 - asked at every step, and a generator would cost as much
        if not kinds or kind in kinds:
            return True
    return False


def publish(event: Observable) -> None:
    """Tell every subscriber that wants it."""
    for listener, kinds in tuple(_subscribers.items()):
        if kinds and type(event) not in kinds:
            continue
        try:
            listener(event)
        except Exception:  # noqa: BLE001 - an observer must never disturb the run it observes
            _subscribers.pop(listener, None)
            sys.stderr.write(f"perdure: a subscriber failed and was dropped\n{traceback.format_exc()}")
