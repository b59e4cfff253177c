"""`wait_for` and `signal`: named messages to a run, kept until it waits for them, delivered once each, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure import clock, codec
from perdure.bodies import Opened
from perdure.engine.failure import describe_failure
from perdure.engine.signature import is_storable_text
from perdure.engine.wait import Place, Resolution, WaitSpec, agent_frame, waited
from perdure.engine.whereabouts import previous_id
from perdure.errors import DeadlineExceeded, UsageError
from perdure.policy import Duration, seconds_of

if TYPE_CHECKING:
    from perdure.bodies import Started
    from perdure.engine.active import Waiting
    from perdure.engine.call import Prepared
    from perdure.records import Run

NAME_CHARACTERS: Final = 200


def wait_for(name: str, timeout: Duration | None = None) -> Any:
    """The payload of the next signal of this name; one that was sent before is kept. In an async agent, await it.

    Without a signal in `timeout`, `DeadlineExceeded` is raised. The run leaves memory while it waits.
    """
    checked_signal(name)
    seconds = None if timeout is None else seconds_of(timeout, what="timeout")
    active = agent_frame("wait_for").active
    if active is not None:
        refuse_undeclared(active.row, active.journal.started(), name)
    return waited(_WAIT_FOR, ForSignal(name, seconds), name, finish=_payload)


def checked_signal(name: object) -> str:
    """The name of a signal; raises where it could not be stored or typed."""
    if not isinstance(name, str) or not is_storable_text(name, NAME_CHARACTERS) or not name.isprintable():
        raise UsageError(
            f"The signal name {codec.describe(name)} is not usable.",
            safe="nothing was sent or recorded.",
            hint=f"a printable text of 1 to {NAME_CHARACTERS} characters",
        )
    return name


def checked_signals(names: object) -> tuple[str, ...]:
    """The names an agent declares; raises where they are none."""
    if not isinstance(names, (list, tuple, set, frozenset)):
        raise UsageError(
            f"signals={codec.describe(names)} are no names.", safe="nothing was defined.", hint='signals=("go", "stop")'
        )
    return tuple(checked_signal(name) for name in names)


def refuse_undeclared(run: Run, started: Started, name: str) -> None:
    """A signal that its agent does not declare can neither be sent nor waited for."""
    known = started.signals
    if known is not None and name not in known:
        raise UsageError(
            f"Run {run.name} ({run.agent}) knows no signal {name!r}.",
            safe="nothing was sent or recorded.",
            hint=f"its signals are {', '.join(known) or 'none'}",
        )


class ForSignal:
    """A wait that a signal ends, or its timeout."""

    def __init__(self, name: str, seconds: float | None) -> None:
        self._name = name
        self._seconds = seconds

    def open(self, prepared: Prepared[WaitSpec]) -> Opened:
        """The name, and until when."""
        due_at = 0.0 if self._seconds is None else clock.wall_seconds() + self._seconds
        return Opened(reason="signal", shown=prepared.shown(), due_at=due_at, signal=self._name)

    def look(self, place: Place) -> Resolution | None:
        """The oldest signal of this name that came in time."""
        due_at = place.opened.due_at or float("inf")
        is_heir = bool(previous_id(place.active.row.run_id))  # it was handed older mail after newer had come
        for mail in sorted(place.mail, key=lambda mail: mail.at) if is_heir else place.mail:
            if mail.kind == "signal" and mail.key == self._name and mail.at < due_at:
                return Resolution(sealed=_body(mail.body), taken=(mail.mail_id,), by=mail.by)
        if not place.is_due:
            return None
        late = DeadlineExceeded(f"No signal {self._name!r} came in {place.allowed_seconds(self._seconds):g} s.")
        return Resolution(failure=describe_failure(late))

    def standing(self, place: Place) -> Waiting:
        """Waiting for this name."""
        command = f"perdure signal {place.active.row.name} {self._name} <json>, then start again"
        return place.waiting(f"waits for the signal {self._name!r}", command)


def _wait_for(signal: str) -> Any:
    """The parameters that identify a wait for a signal."""


_WAIT_FOR = WaitSpec(_wait_for, name="wait_for")


def _payload(_prepared: Prepared[WaitSpec], value: Any) -> Any:
    return value


def _body(text: str) -> bytes:
    return bytes(msgspec.json.decode(text, type=dict[str, msgspec.Raw])["payload"])
