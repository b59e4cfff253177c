"""What a move makes of a run's rows in the two stores, so that it can go on in one of them at a time; pure.

A run comes in parked at the target (`arriving`), is closed at the source (`departed`), and is let go at the target
(`released`). Whatever ends a move between these leaves the run able to go on at the source, or parked at the target
until the same move is done again; never able to go on in both.
"""

from __future__ import annotations

import hashlib
import shlex
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from perdure import clock
from perdure.bodies import Ended, write_body
from perdure.errors import RunImported, RunMoved, UsageError, saved_steps
from perdure.records import FINISHED, Kind, Mail, Record, Run, RunState, WaitReason, extended, sealed_run
from perdure.store.chain import is_whole
from perdure.store.debounce import is_untaken
from perdure.store.lease import Move, Park, Presence, held, read_park, write_park
from perdure.store.portable import parked_beyond
from perdure.store.protocol import Arrival, Departure, Whole
from perdure.telemetry.text import counted, utc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.records import Worker


class Reception(Enum):
    """What taking a run in means for a store."""

    NEW = auto()
    MERGED = auto()
    """Some of it is here: from an earlier attempt at this move, or from when the run left."""
    SAME = auto()


class Joined(Struct, frozen=True):
    """How a run that comes in continues what is here: so many records and mails are the same."""

    records: int = 0
    mail: int = 0


def token_of(whole: Whole, source: str) -> str:
    """What both stores write down of a move; a run that changed since, or gets other mail, has another."""
    proof = hashlib.sha256(f"{source}\n".encode() + whole.run.digest)
    for mail in whole.mail:
        proof.update(mail.digest)
    return proof.hexdigest()[:32]


def is_arriving(run: Run) -> bool:
    """Whether the run is on its way to the store that has this row."""
    park = read_park(run)
    return park.code == RunImported.code and park.move is not None


def has_left(run: Run) -> bool:
    """Whether the run was moved away from the store that has this row."""
    park = read_park(run)
    return park.code == RunMoved.code or (run.state in FINISHED and park.move is not None)


def refuse_moving(run: Run) -> None:
    """Refuse what only a run that can go on here may be asked: words for it would never be read."""
    if is_whole(run) and (has_left(run) or is_arriving(run)):
        park = read_park(run)
        words = _gone(run, park.move) if run.state in FINISHED else park
        raise RunMoved(words.message, safe="nothing was written.", hint=words.hint)


def migrate_command(source: str, target: str) -> str:
    """The command that goes on with this move, as a person can paste it."""
    return shlex.join(("perdure", "migrate", "--from", source, "--to", target))


def reception(known: Run | None, arrival: Arrival) -> Reception:
    """What taking this run in means, given what is here; a run that may go on here is never touched."""
    if known is None:
        return Reception.NEW
    run, move = arrival.whole.run, read_park(known).move
    if is_arriving(known):
        if move is not None and move.source != arrival.source:
            raise UsageError(
                f"Run {run.name} is on its way here from {move.source}.",
                safe="it was left where it is.",
                hint=f"end that move first: {migrate_command(move.source, arrival.target)}",
            )
        return Reception.MERGED
    if run.state in FINISHED and (known.state, known.head) == (run.state, run.head):
        return Reception.MERGED if move is not None else Reception.SAME
    if move is not None and known.state not in FINISHED:
        return Reception.MERGED
    raise _other_history(known, run)


def joined(known: Run, here: Sequence[Record], mail: Sequence[Mail], arrival: Arrival) -> Joined:
    """How far what is here is the beginning of what comes; refused where it is another run's history."""
    whole = arrival.whole
    same = 0
    for one, other in zip(here, whole.records, strict=False):
        if one.digest != other.digest:
            break
        same += 1
    is_older = len(mail) <= len(whole.mail) and all(map(_is_same_mail, mail, whole.mail))
    if not (same or _was_drafted_anew(known, whole.run)) or not is_older:
        raise _other_history(known, whole.run)
    return Joined(same, len(mail))


def _was_drafted_anew(known: Run, run: Run) -> bool:
    """Whether a debounced start replaced the first record elsewhere, of a run that left before anybody had taken it."""
    move = read_park(known).move
    is_same = (known.name, known.agent, known.created_at) == (run.name, run.agent, run.created_at)
    return move is not None and is_untaken(move.row) and is_same


def arriving(arrival: Arrival, numbers: Sequence[int], *, known: Run | None) -> Run:
    """The row with which a run comes in; `numbers` are those its mail has here.

    A finished run is as it was. Any other is parked, and keeps the row that it gets when it is released; somebody who
    resumes it by name instead has a run that may have gone further elsewhere.
    """
    row = _numbered(arrival.whole, numbers)
    if row.state in FINISHED:
        return row
    if known is not None:
        row = sealed_run(msgspec.structs.replace(row, epoch=max(row.epoch, _newest_epoch(known))))
    park = Park(
        code=RunImported.code,
        message=f"Run {row.name} is on its way here from {arrival.source}; that move has not ended.",
        safe=f"{saved_steps(row.steps)}; it goes on in one of the two stores only.",
        hint=migrate_command(arrival.source, arrival.target),
        move=Move(arrival.token, arrival.source, arrival.target, row),
    )
    return parked_beyond(row, park, heard=max(numbers, default=0))


def departed(departure: Departure, *, heard: int) -> tuple[Run, tuple[Record, ...]]:
    """The row, and the last record, of a run that is closed where it was; `heard` is its newest mail.

    A finished run stays finished. Where a process may once have written under its epoch, that is not enough any more.
    """
    run = departure.run
    move = Move(departure.token, departure.source, departure.target, run)
    if run.state in FINISHED:
        kept = msgspec.structs.replace(read_park(run), move=move)
        return sealed_run(msgspec.structs.replace(run, detail=write_park(kept))), ()
    now = clock.wall_seconds()
    park = _gone(run, move, at=now)
    body = Ended(state=RunState.WAITING, reason=WaitReason.PARKED, code=park.code, message=park.message, hint=park.hint)
    epoch = run.epoch + bool(run.holder)
    record = Record(run.length, Kind.ENDED, "", run.agent, b"", now, epoch, write_body(body))
    return extended(
        run,
        at=now,
        records=(record,),
        state=RunState.WAITING,
        reason=WaitReason.PARKED,
        detail=write_park(park),
        epoch=epoch,
        holder="",
        wake_at=0.0,
        heard=heard,
    )


def refuse_departure(
    now: Run | None,
    mail: Sequence[Mail],
    departure: Departure,
    holder: Worker | None,
    presence: Presence,
    *,
    unproven_seconds: float = 0.0,
) -> bool:
    """Refuse to close a run that is not as it was read, or that a process may hold; whether it is closed already."""
    run = departure.run
    if now is not None and has_left(now):
        move = read_park(now).move
        if move is not None and move.token == departure.token:
            return True
    if now != run or tuple(each.digest for each in mail) != departure.mail:
        raise UsageError(
            f"Run {run.name} changed while it was read.", safe="it goes on where it is.", hint="move it again"
        )
    if run.state not in FINISHED and (presence is Presence.ALIVE or unproven_seconds > 0):
        raise held(run, holder)
    return False


def released(now: Run | None, token: str) -> Run | None:
    """The row of a run that came in and is closed where it was; None where there is nothing to release."""
    move = read_park(now).move if now is not None and is_arriving(now) else None
    return move.row if move is not None and move.token == token else None


def before_departure(whole: Whole) -> Whole:
    """A run that was closed, as it was before."""
    move = read_park(whole.run).move
    if move is None:
        return whole
    return Whole(move.row, whole.records[: move.row.length], whole.mail)


def _newest_epoch(known: Run) -> int:
    """Under which a process may have written here before the run left: such a one must stay shut out."""
    move = read_park(known).move
    return move.row.epoch if move is not None and is_arriving(known) else known.epoch


def _gone(run: Run, move: Move | None, *, at: float = 0.0) -> Park:
    target = move.target if move is not None else "another store"
    when = f" on {utc(at)}" if at else ""
    return Park(
        code=RunMoved.code,
        message=f"Run {run.name} was moved to {target}{when}.",
        safe=f"{saved_steps(run.steps)} and went with it; nothing is done here.",
        hint=f"perdure show {run.name} --store {shlex.quote(target)}",
        move=move,
    )


def _numbered(whole: Whole, numbers: Sequence[int]) -> Run:
    """The row, with the number here of the newest mail that the run had heard of."""
    run = whole.run
    if run.state in FINISHED or not run.heard:
        return run
    known = [number for number, mail in zip(numbers, whole.mail, strict=True) if mail.mail_id <= run.heard]
    return sealed_run(msgspec.structs.replace(run, heard=max(known, default=0)))


def _is_same_mail(one: Mail, other: Mail) -> bool:
    """Whether it says the same; it may have been taken since."""
    return (one.kind, one.key, one.body, one.by, one.at) == (other.kind, other.key, other.body, other.by, other.at)


def _other_history(known: Run, run: Run) -> UsageError:
    can_go_on = "" if known.state in FINISHED else ", and it can go on there"
    return UsageError(
        f"Run {run.name} is at the target already ({known.state}, {counted(known.length, 'record')}{can_go_on})"
        f"; at the source it is {run.state}, {counted(run.length, 'record')}.",
        safe="it was left as it is in both.",
        hint=f"perdure show {run.run_id} in each; then perdure cancel the one that must not go on",
    )
