"""Starts that come close together become one run: what was asked for, and accepting it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure import events
from perdure.engine import lifecycle
from perdure.errors import UsageError
from perdure.policy import Duration, seconds_of
from perdure.store.debounce import Start

if TYPE_CHECKING:
    from perdure.engine.agent import AgentSpec
    from perdure.engine.lifecycle import Request
    from perdure.engine.session import Session
    from perdure.records import Run

MOST_FACTOR: Final = 10
"""Where nothing else is said, a run begins at the latest after so many times its quiet time."""

_KEY_CHARACTERS: Final = 200
_SAFE: Final = "nothing was started."


class Debouncing(Struct, frozen=True):
    """Starts of one agent and key become one run, begun when none came for so long, or at the latest after so long."""

    key: str
    quiet_seconds: float
    most_seconds: float


def debouncing(debounce: Duration | None, key: str | None, at_most: Duration | None) -> Debouncing | None:
    """What was asked for; None where it was not."""
    if debounce is None:
        if key is not None or at_most is not None:
            raise UsageError(
                "debounce_key and at_most say something of debounce, which is not given.",
                safe=_SAFE,
                hint='debounce="30s"',
            )
        return None
    quiet = seconds_of(debounce, what="debounce")
    most = quiet * MOST_FACTOR if at_most is None else seconds_of(at_most, what="at_most")
    if not 0 < quiet <= most:
        raise UsageError(
            f"debounce={debounce!r}, at_most={at_most!r}: a run cannot wait for nothing, nor longer than it may.",
            safe=_SAFE,
            hint='debounce="30s", at_most="5m"',
        )
    return Debouncing(_checked_key("" if key is None else key), quiet, most)


def accept_debounced(session: Session, spec: AgentSpec, request: Request, wanted: Debouncing) -> Run:
    """The run that this start became: a new one, or the one of its key that nobody had taken, with these arguments."""
    if request.run_id is not None or (request.placement is not None and request.placement.delay_seconds):
        what = "run_id" if request.run_id is not None else "delay"
        raise UsageError(
            f"{what} and debounce do not go together.",
            safe=_SAFE,
            hint="debounce_key says which starts are one run, and debounce for how long it waits",
        )
    arguments: dict[str, Any] = spec.signature.bind(request.args, request.kwargs)
    run, first = lifecycle.drafted(
        spec,
        arguments,
        durability=session.settings.durability,
        tags=request.tags,
        deadline_seconds=request.deadline_seconds,
        placement=request.placement,
    )
    start = Start(run, first, wanted.key, wanted.quiet_seconds, wanted.most_seconds)
    accepted = session.store.debounce_run(start)
    if accepted.run_id == run.run_id:
        events.publish(events.RunStarted(run.run_id, run.name, run.agent, session.store.location))
    return accepted


def refuse_inside_run(wanted: Debouncing | None) -> None:
    """A child has its place in its parent, and nobody else could be given it."""
    if wanted is not None:
        raise UsageError(
            "perdure.start(debounce=…) was called inside a run.",
            safe=_SAFE,
            hint="start it from outside a run, or leave debounce out: inside one it is a child",
        )


def _checked_key(key: object) -> str:
    if not isinstance(key, str) or not key.isprintable() or len(key) > _KEY_CHARACTERS:
        raise UsageError(
            f"debounce_key={key!r:.80} is not usable.",
            safe=_SAFE,
            hint=f'a printable text of up to {_KEY_CHARACTERS} characters: debounce_key="customer-7"',
        )
    return key
