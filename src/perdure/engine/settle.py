"""Settling an effect in doubt, in this order: what others wrote, the key, the check, a person.

In flight → settleable → settled: `happened` counts at once, `did_not_happen` only once a dead sender's request can no
longer land.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Literal, Never

from msgspec import Struct

from perdure import clock, codec, events, typed
from perdure.bodies import Doubt, Intended, Settled, read_body
from perdure.engine.active import Doubtful
from perdure.engine.drive import Commit, Operation, Pause, Perform, Quiet
from perdure.engine.failure import message_of
from perdure.engine.mailbox import Letter
from perdure.engine.scope import Frame
from perdure.errors import START_OVER, StepFailed, UnstorableValue
from perdure.policy import SAME_KEY, delay_seconds, seconds_in_flight
from perdure.records import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime

    from perdure.engine.active import Active
    from perdure.engine.call import Prepared
    from perdure.engine.effect import EffectSpec
    from perdure.records import Mail, Record


KNOWN_TO_HAPPEN: Final = "it happened, but its result cannot be stored"
"""Opens the doubt of an effect whose body returned: no check can talk it into being performed again."""


class Intent(Struct, frozen=True):
    """What a check is given: the attempt whose outcome is not known."""

    key: str
    name: str
    arguments: dict[str, Any]
    at: datetime
    attempt: int


class Verdict(Struct, frozen=True):
    """What a check answers."""

    outcome: Literal["happened", "did_not_happen", "cannot_tell"]
    value: Any = None
    note: str = ""


def happened(value: Any = None) -> Verdict:
    """It did take place, with this result."""
    return Verdict("happened", value)


def did_not_happen() -> Verdict:
    """It did not take place."""
    return Verdict("did_not_happen")


def cannot_tell(note: str = "") -> Verdict:
    """Whether it took place cannot be found out here."""
    return Verdict("cannot_tell", note=note)


class Happened(Struct, frozen=True):
    """Settled: the effect took place; this is its value."""

    value: Any


class Again(Struct, frozen=True):
    """Settled: perform it as this attempt, under a key first used at that time (0: a key nobody has seen)."""

    attempt: int
    key_at: float = 0.0


def settle(
    prepared: Prepared[EffectSpec],
    intent: Record | None,
    *,
    attempt: int,
    why: str,
    performance: Perform | None = None,
) -> Generator[Operation, Any, Happened | Again]:
    """Find out what became of an attempt, store the verdict, and say how to go on; or wait for a person."""
    spec = prepared.spec
    prepared.active.open_effects[prepared.call.key] = (spec.name, prepared.shown())
    if intent is None:
        intent = yield from _suspect(prepared, attempt=attempt, why=why)
    _publish_doubt(prepared, why)
    letters = _letters_for(prepared, attempt)
    misfit = _misfit(prepared, letters[-1][1]) if letters else ""
    if letters and not misfit:
        return (yield from _record_letters(prepared, letters, attempt=attempt))
    why = misfit or why
    if spec.keyed:
        key_at = _key_at(intent)
        if clock.wall_seconds() - key_at > spec.key_ttl_seconds:
            why = f"{why or 'its process died'}; its key is older than the outside remembers"
        elif performance is None:
            return Again(attempt + 1, key_at)
        elif attempt < SAME_KEY.attempts:
            yield Pause(delay_seconds(SAME_KEY, failed_attempts=attempt, fraction=clock.new_fraction()))
            return Again(attempt + 1, key_at)
        else:
            why = f"{why}; sent {attempt} times under the same key"
    if spec.check is not None:
        obstacle = functools.partial(_obstacle, why, performance)
        # Of an attempt that ended here, this is the end. Of any other, only that it has ended since the run is ours.
        over_since = clock.boot_seconds() if performance is not None else prepared.active.held_since
        checked = yield from _check(
            prepared, spec.check, intent, attempt=attempt, obstacle=obstacle, over_since=over_since
        )
        if isinstance(checked, (Happened, Again)):
            return checked
        why = checked
    return (yield from ask_person(prepared, why=why or "its process died"))


def ask_person(prepared: Prepared[EffectSpec], *, why: str) -> Generator[Operation, Any, Never]:
    """Only a person can tell: once no other strand of the run moves, the run waits."""
    active = prepared.active
    heard = active.heard_in_doubt.get(prepared.call.key, 0)
    active.doubt(Doubtful(prepared.call.key, prepared.spec.name, prepared.shown(), why, heard))
    yield Quiet(active)
    raise active.signal or active.suspend()


def verdict_value(prepared: Prepared[EffectSpec], verdict: Settled) -> Any:
    """The value of an effect that was settled as done; one settled as failed raises."""
    if verdict.outcome == "fail":
        raise StepFailed(
            f"{prepared.shown()} was settled as failed by {verdict.by}.",
            hint=f"perdure fork {prepared.active.row.name} performs it again; or {START_OVER}",
        )
    try:
        sealed = prepared.active.load_value(verdict.value, verdict.blob)
        return codec.unseal(sealed, prepared.spec.signature.returns)
    except ValueError as error:
        raise prepared.unloadable(error) from error


def leave_in_doubt(prepared: Prepared[EffectSpec], *, attempt: int, why: str) -> None:
    """Stop the run at its next call: what was begun here cannot be waited for, and nothing may come after it."""
    active = prepared.active
    if active.signal is None:
        active.submit(Kind.DOUBT, prepared.call, Doubt(attempt=attempt, why=why), power=True)
        active.doubt(Doubtful(prepared.call.key, prepared.spec.name, prepared.shown(), why))
        active.suspend()


def record_doubt(
    prepared: Prepared[EffectSpec], *, attempt: int, why: str, lost: bool = False
) -> Generator[Operation, Any, Record]:
    """Commit why an attempt that began cannot be called done or not done."""
    active = prepared.active
    if lost:
        active.journal.suspects -= 1
    body = Doubt(attempt=attempt, why=why, lost=lost)
    ticket, record = active.submit(Kind.DOUBT, prepared.call, body, power=True, suspects=active.journal.suspects)
    yield Commit(active, ticket)
    return record


def _suspect(prepared: Prepared[EffectSpec], *, attempt: int, why: str) -> Generator[Operation, Any, Record]:
    """The intent of this effect may be among records that were lost: say so in the journal, once."""
    return (yield from record_doubt(prepared, attempt=attempt, why=why, lost=True))


def _check(
    prepared: Prepared[EffectSpec],
    check: Callable[[Intent], Any],
    intent: Record,
    *,
    attempt: int,
    obstacle: Callable[[], str],
    over_since: float,
) -> Generator[Operation, Any, Happened | Again | str]:
    """Ask the effect's check until its answer counts; a text says why a person must decide."""
    spec = prepared.spec
    asked = Intent(
        key=spec.effect_key(prepared),
        name=spec.name,
        arguments=dict(prepared.arguments),
        at=clock.instant(intent.at),
        attempt=attempt,
    )
    while True:
        frame = Frame(
            prepared.active,
            prepared.frame.scope,
            body=f"the check of {spec.name}",
            step_key=prepared.call.key,
            effect_key=asked.key,
            attempt=attempt,
        )
        try:
            verdict = yield Perform(prepared.active, frame, check, (asked,))
        except Exception as error:  # noqa: BLE001 - a check that fails cannot tell
            return f"its check failed: {type(error).__name__}: {message_of(error)}"
        if not isinstance(verdict, Verdict):
            return f"its check returned {codec.describe(verdict)} instead of perdure.happened(…) or the like"
        if verdict.outcome == "happened":
            try:
                sealed, _ = codec.seal_faithfully(verdict.value, spec.signature.returns, what="its result")
            except UnstorableValue as error:
                return f"its check says that it happened, but {error.message}"
            return (yield from _record(prepared, attempt=attempt, outcome="happened", by="check", sealed=sealed))
        if verdict.outcome == "cannot_tell":
            return f"its check cannot tell{': ' + verdict.note if verdict.note else ''}"
        seconds = seconds_in_flight(
            over_seconds=clock.boot_seconds() - over_since,
            in_flight_seconds=spec.in_flight_seconds,
            unproven_seconds=_unproven_seconds(prepared.active, intent),
        )
        if not seconds:
            if why := obstacle():
                return why
            return (yield from _record(prepared, attempt=attempt, outcome="did_not_happen", by="check", sealed=b"null"))
        if events.is_wanted(events.DoubtPending):
            row = prepared.active.row
            events.publish(events.DoubtPending(row.run_id, row.name, spec.name, seconds))
        yield Pause(max(0.001, seconds))


def _obstacle(why: str, performance: Perform | None) -> str:
    """Why the effect must not be performed again, even if its check did not find it."""
    if why.startswith(KNOWN_TO_HAPPEN):
        return why
    return "its body still runs past its timeout" if performance is not None and performance.lingers else ""


def _letters_for(prepared: Prepared[EffectSpec], attempt: int) -> list[tuple[Mail, Letter]]:
    """What others wrote about this very attempt; what decides is last.

    A person's newest word counts for more than evidence, except that nobody can call undone what a worker saw done.
    """
    found = []
    active = prepared.active
    mails = active.read(active.mail)
    active.heard_in_doubt[prepared.call.key] = max((mail.mail_id for mail in mails), default=0)
    for mail in mails:
        if mail.key == prepared.call.key and mail.kind in ("verdict", "evidence"):
            letter = typed.read(mail.body, Letter)
            if letter.attempt == attempt:
                found.append((mail, letter))
    found.sort(key=lambda pair: (pair[0].kind == "verdict", pair[0].mail_id))
    if found and found[-1][1].outcome == "did_not_happen":
        found.sort(key=lambda pair: pair[0].kind == "evidence")
    return found


def _misfit(prepared: Prepared[EffectSpec], letter: Letter) -> str:
    """Why a verdict cannot be used: its result must be one the effect could have returned."""
    if letter.outcome != "happened":
        return ""
    try:
        codec.unseal(bytes(letter.value), prepared.spec.signature.returns)
    except ValueError as error:
        return f"the result given with the verdict does not fit: {error}"
    return ""


def _record_letters(
    prepared: Prepared[EffectSpec], letters: list[tuple[Mail, Letter]], *, attempt: int
) -> Generator[Operation, Any, Happened | Again]:
    """Journal what was taken from the mailbox, in the same transaction that takes it, and act on it."""
    mail, letter = letters[-1]
    taken = tuple(found.mail_id for found, _ in letters)
    return (
        yield from _record(
            prepared, attempt=attempt, outcome=letter.outcome, by=mail.by, sealed=bytes(letter.value), taken=taken
        )
    )


def _record(
    prepared: Prepared[EffectSpec],
    *,
    attempt: int,
    outcome: Literal["happened", "did_not_happen", "fail"],
    by: str,
    sealed: bytes,
    taken: tuple[int, ...] = (),
) -> Generator[Operation, Any, Happened | Again]:
    active = prepared.active
    raw, blob, stored = active.stored_value(sealed)
    verdict = Settled(attempt=attempt, outcome=outcome, by=by, value=raw, blob=blob)
    ticket, _ = active.submit(Kind.VERDICT, prepared.call, verdict, stored=stored, taken=taken, power=True)
    yield Commit(active, ticket)
    if events.is_wanted(events.DoubtSettled):
        row = active.row
        place = (row.run_id, row.name, prepared.spec.name)
        events.publish(events.DoubtSettled(*place, outcome, by, prepared.call.key))
    return Again(attempt + 1) if outcome == "did_not_happen" else Happened(verdict_value(prepared, verdict))


def _unproven_seconds(active: Active, intent: Record) -> float:
    """For how long after this run was taken over the sender of an attempt may have lived, and have sent it."""
    later = [read_body(record) for record in active.journal.deliveries if record.epoch > intent.epoch]
    return max((delivery.unproven_seconds for delivery in later), default=0.0)


def _key_at(intent: Record) -> float:
    """When the outside may first have seen the key of this attempt."""
    body = read_body(intent)
    return body.key_at if isinstance(body, Intended) and body.key_at else intent.at


def _publish_doubt(prepared: Prepared[EffectSpec], why: str) -> None:
    if events.is_wanted(events.DoubtFound):
        row = prepared.active.row
        place = (row.run_id, row.name, prepared.spec.name)
        events.publish(events.DoubtFound(*place, why or "started, never confirmed", prepared.call.key))
