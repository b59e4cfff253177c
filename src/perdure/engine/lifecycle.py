"""From a call of an agent to a held run: which run it means, accepting it, claiming it, loading its journal.

Recovery goes in this order: the journal is verified, then the program replays it; effects in doubt are settled as the
replay reaches them, before anything after them in their strand. A crash at any point of it ends in the same state.
"""

from __future__ import annotations

import contextlib
import inspect
import platform
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, Struct

from perdure import clock, codec, events
from perdure.bodies import Ancestor, Delivery, Ended, Started, read_body, write_body
from perdure.engine.active import Active, Stop
from perdure.engine.drive import Operation
from perdure.engine.ledger import Ledger
from perdure.engine.names import new_name, new_run_id
from perdure.engine.session import Session, heed
from perdure.engine.signature import shown_call
from perdure.engine.whereabouts import (
    UNDONE,
    continuation,
    doubts_left,
    hand_on,
    is_paused,
    is_undone,
    newest,
    previous_id,
    undoing_of,
    vanished,
)
from perdure.errors import (
    START_OVER,
    PerdureError,
    RunCancelled,
    RunHeld,
    RunPaused,
    UsageError,
)
from perdure.policy import is_recent
from perdure.queues import Placement
from perdure.records import (
    DEFAULT_QUEUE,
    FINISHED,
    Durability,
    Kind,
    Record,
    Run,
    RunState,
    WaitReason,
    extended,
    is_tick_id,
)
from perdure.replay import Journal
from perdure.settings import version_to_pin
from perdure.store.lease import read_park
from perdure.store.moving import has_left
from perdure.telemetry.text import legible
from perdure.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from perdure.engine.agent import AgentSpec
    from perdure.store.protocol import Store

_PAUSES: Final = {
    WaitReason.HUMAN: "it waited for an answer",
    WaitReason.TIME: "it slept",
    WaitReason.SIGNAL: "it waited for a signal",
    WaitReason.CHILD: "it waited for a child",
    WaitReason.IN_DOUBT: "it was in doubt",
    WaitReason.PARKED: "it was parked",
}
_RUN_ID_CHARACTERS = 200
_SHOWN_CHARACTERS: Final = 200
_LOOKS = 100
_LONG_WAITS = frozenset({WaitReason.HUMAN, WaitReason.SIGNAL, WaitReason.TIME, WaitReason.CHILD})
"""For these a run may wait longer than a run that died is resumed without being named."""


class Finished(Struct, frozen=True):
    """A run that had completed before, and its recorded value."""

    row: Run
    value: Any


class Request(Struct, frozen=True):
    """What a caller asked for."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    run_id: str | None = None
    fresh: bool = False
    tags: str = ""
    deadline_seconds: float = 0.0
    placement: Placement | None = None
    """Where it waits for a worker; None where it is not left to one."""
    resumes: bool = True
    """Whether an unfinished run of the same call may be meant."""
    pardon: bool = False
    """Whether a person named the run, so that it is forgiven."""


def enter(session: Session, spec: AgentSpec, request: Request) -> Active | Finished:
    """Hold the run this request means: one that can go on, or a new one whose first record is committed.

    An unnamed run that somebody else took or completed in the meantime is theirs: the request means another.
    """
    for _ in range(_LOOKS):
        try:
            entered = _entered(session, spec, request)
        except RunHeld:
            if request.run_id is not None:
                raise
            continue
        if request.run_id is not None or isinstance(entered, Active):
            return entered
    return _entered(session, spec, request)


def _entered(session: Session, spec: AgentSpec, request: Request) -> Active | Finished:
    arguments = spec.signature.bind(request.args, request.kwargs)
    digest = codec.digest_arguments(arguments, of=spec.name)
    known: Run | None = None
    if request.run_id is not None:
        known = session.store.read_run(_checked_id(request.run_id))
    elif not request.fresh:
        known = _resumable(session, spec, digest)
        if known is not None and not request.resumes:
            raise UsageError(
                f"Run {known.name} of the same call is unfinished.",
                safe="nothing was started, and the run is untouched.",
                hint=f"leave --no-resume out to go on with it; {START_OVER}; perdure show {known.name}",
            )
    if known is None:
        _refuse_reserved(request.run_id)
        known, records = _create(session, spec, arguments, request)
        if records:
            return load(session, known, new=records)
    if request.run_id is not None:
        _refuse_other_request(known, spec, digest, arguments, fresh=request.fresh)
    return open_run(session, spec, known, pardon=request.pardon)


def accept(session: Session, spec: AgentSpec, request: Request) -> Run:
    """Accept a run that nobody holds yet; an id that is known means the run that has it, if it is the same call."""
    arguments = spec.signature.bind(request.args, request.kwargs)
    digest = codec.digest_arguments(arguments, of=spec.name)
    session.store.join()
    known = session.store.read_run(_checked_id(request.run_id)) if request.run_id is not None else None
    if known is None:
        _refuse_reserved(request.run_id)
        run, first = _drafted(session, spec, arguments, request)
        known = session.store.create_run(run, first)
        if (known.name, known.head) == (run.name, run.head):  # the store may have given it its turn
            events.publish(events.RunStarted(run.run_id, run.name, run.agent, session.store.location))
            return known
    _refuse_other_request(known, spec, digest, arguments, fresh=request.fresh)
    return known


def open_run(
    session: Session, spec: AgentSpec, run: Run, *, pardon: bool = False, quietly: bool = False, gated: bool = False
) -> Active | Finished:
    """Claim a run and load its journal; a completed one is answered from its record.

    `quietly` where this process waited for the run itself: nobody needs to be told that it goes on. `gated` where a
    worker takes it for its queue, whose limits then hold.
    """
    if not pardon:
        _refuse_paused(session, run)
    if run.state == RunState.FAILED and (undoing := undoing_of(session.store, run.run_id)) is not None:
        raise _taken_back(run, undoing)
    if run.state not in FINISHED:
        run = session.claim(run.run_id, pardon=pardon, deliveries=spec.deliveries, gated=gated)
        if run.state in FINISHED:
            session.release(run.run_id)
    if run.state == RunState.COMPLETED:
        if continuation(run):
            last = newest(session.store, run.run_id)
            if last is None:
                raise vanished(continuation(run))
            return open_run(session, spec, last, pardon=pardon, quietly=quietly, gated=gated)
        return Finished(run, recorded_result(session, spec, run))
    if run.state == RunState.CANCELLED and quietly:
        raise RunCancelled(f"Run {run.name} was cancelled.")
    if run.state == RunState.CANCELLED:
        raise UsageError(
            f"Run {run.name} was cancelled.",
            safe="nothing was done.",
            hint=f"{START_OVER}; or under another id",
        )
    return load(session, run, quietly=quietly)


def _refuse_paused(session: Session, run: Run) -> None:
    if is_paused(session.store, run):
        park = read_park(run)
        raise RunPaused(park.message, safe=park.safe, hint=park.hint)


def _heed_undoing(active: Active) -> None:
    """Stop a failed run at its next call if somebody has begun to take its effects back since it was looked at."""
    undoing = undoing_of(active.store, active.row.run_id)
    if undoing is not None and active.signal is None:
        active.halt(Stop(RunState.FAILED, None, _taken_back(active.row, undoing)))


def _taken_back(run: Run, undoing: Run) -> UsageError:
    return UsageError(
        f"Run {run.name} failed and its effects are taken back by run {undoing.name}, so it cannot go on.",
        safe="nothing was performed.",
        hint=f"perdure undo {run.name} tells how far that is; {START_OVER}; or under another id",
    )


def load(session: Session, run: Run, *, new: Sequence[Record] = (), quietly: bool = False) -> Active:
    """The held run with its journal, verified; from here on its lease is kept alive.

    The journal of a `new` run was made here and committed just now: it is not read again, and nobody wrote to it yet.
    """
    try:
        if earlier := previous_id(run.run_id):
            hand_on(session.store, earlier, run.run_id)
        records = list(new) or session.store.load_journal(run.run_id)
        journal = Journal(records, suspects=run.suspects)
        before = "" if quietly else _before(journal, records)
        active = Active(session.store, session.writer, run, journal, before=before)
        started = journal.started()
        active.deadline_at = started.deadline_at
        if started.forked_from is not None:
            active.descend(started.forked_from, records)
        active.resources = Ledger(records)
        session.hold(active)
        if not new:
            heed(active)
        if journal.ended is not None and journal.ended.state == RunState.FAILED:
            _heed_undoing(active)
    except BaseException:
        session.release(run.run_id)
        raise
    return active


def recovered(active: Active) -> Generator[Operation, Any, None]:
    """Look again at everything a resumed run has tracked; a run that has tracked nothing pays nothing."""
    if active.resources.known:
        from perdure.engine.recovery import validated_all

        yield from validated_all(active)


def recorded_result(session: Session, spec: AgentSpec, run: Run) -> Any:
    """The value a completed run returned."""
    ended: Ended = read_body(session.store.load_journal(run.run_id)[-1])
    sealed = session.store.load_blob(bytes.fromhex(ended.blob)) if ended.blob else bytes(ended.value)
    return codec.unseal(sealed, spec.signature.returns)


def recorded_arguments(active: Active, spec: AgentSpec) -> inspect.BoundArguments:
    """The arguments as the first record holds them, so that the first run sees what a replay will see."""
    started = active.journal.started()
    try:
        arguments = codec.unseal_arguments(bytes(started.arguments), spec.signature.parameters)
        return spec.signature.call(arguments)
    except (ValueError, TypeError) as error:
        given = legible(bytes(started.arguments).decode(), _SHOWN_CHARACTERS)
        raise active.diverge(f"{spec.name} with {given}", str(error)) from error


def _before(journal: Journal, records: list[Record]) -> str:
    """What became of the delivery before this one; empty for the first."""
    deliveries = journal.deliveries
    if len(deliveries) < 2:  # noqa: PLR2004 - the first delivery resumes nothing
        return ""
    origin = journal.started().forked_from
    if origin is not None and deliveries[-2].seq < origin.records:
        return f"it is a fork of {origin.name} at step {origin.at}"
    last: Delivery = read_body(deliveries[-1])
    return last.before or _pause_words(records)


def _pause_words(records: list[Record]) -> str:
    """Why nobody held the run when it was claimed, as its last ending tells."""
    ended = next((read_body(record) for record in reversed(records) if record.kind == Kind.ENDED), None)
    if ended is None or ended.state == RunState.QUEUED:
        return "it was stopped"
    return _PAUSES.get(ended.reason, "it had failed")


def _checked_id(run_id: str) -> str:
    if not isinstance(run_id, str):
        raise UsageError(
            f"run_id {codec.describe(run_id)} is not a text.",
            safe="nothing was started.",
            hint='run_id="a-name-of-yours"',
        )
    is_usable = run_id.isprintable() and run_id == run_id.strip() and not run_id.startswith("-")
    if not 0 < len(run_id) <= _RUN_ID_CHARACTERS or not is_usable:
        raise UsageError(
            f"run_id {run_id[:50]!r} is not usable.",
            safe="nothing was started.",
            hint=f"1 to {_RUN_ID_CHARACTERS} printable characters, without spaces around it or a dash before it",
        )
    return run_id


def _refuse_reserved(run_id: str | None) -> None:
    """An id that looks like those that perdure makes, of what goes on for another or of a tick, is nobody's choice."""
    if run_id is not None and previous_id(run_id):
        raise UsageError(
            f"run_id {run_id!r} ends like the id of a run that goes on for another.",
            safe="nothing was started.",
            hint="choose an id that does not end in ~ and a number",
        )
    if run_id is not None and is_tick_id(run_id):
        raise UsageError(
            f"run_id {run_id!r} looks like the id of the run of a tick.",
            safe="nothing was started.",
            hint="choose an id that does not end in @ and an instant",
        )


def _refuse_other_request(run: Run, spec: AgentSpec, digest: bytes, arguments: dict[str, Any], *, fresh: bool) -> None:
    """A run_id means one call: anything else under it is refused."""
    if fresh:
        raise UsageError(
            f"run_id {run.run_id!r} is taken by run {run.name}.",
            safe="it was not touched.",
            hint="choose another run_id, or leave fresh out to resume it",
        )
    if run.agent != spec.name or run.arguments != digest:
        raise UsageError(
            f"run_id {run.run_id!r} belongs to another call of {run.agent} than {shown_call(spec.name, arguments)}.",
            safe=f"run {run.name} was not touched.",
            hint=f"use another run_id; perdure show {run.name} tells what it was started with",
        )
    if run.state == RunState.FAILED and read_park(run).code == UNDONE:
        raise UsageError(
            f"Run {run.name} (run_id {run.run_id!r}) failed and its effects were undone, so it cannot go on.",
            safe="nothing was performed.",
            hint="start over under another run_id",
        )


def _resumable(session: Session, spec: AgentSpec, digest: bytes) -> Run | None:
    """The newest run of the same call that can go on: unfinished and held by nobody alive, or failed and the newest."""
    now = clock.wall_seconds()
    for number, found in enumerate(session.store.list_runs(agent=spec.name, arguments=digest, limit=100)):
        run = newest(session.store, _not_ended_before(session.store, found).run_id) or found
        if run.state == RunState.CANCELLED and number == 0:
            _tell_doubt_left(session, run)
        if run.state in FINISHED:
            continue
        if session.is_running(run):
            _tell_beside(session, run)
            continue
        if run.state == RunState.FAILED and (number > 0 or is_undone(session.store, run)):
            continue
        if is_recent(run, now=now) or run.reason in _LONG_WAITS or has_left(run):
            return run
        events.publish(events.RunPassedOver(run.run_id, run.name, now - run.updated_at))
    return None


def _not_ended_before(store: Store, run: Run) -> Run:
    """The run that was killed between accepting this one in its place and ending; else this one."""
    base, mark, number = run.run_id.rpartition("~")
    if not mark or not number.isdecimal() or run.state in FINISHED:
        return run
    before = store.read_run(base if number == "2" else f"{base}~{int(number) - 1}")
    is_open = before is not None and before.agent == run.agent and before.state not in FINISHED
    return before if before is not None and is_open else run


def _tell_doubt_left(session: Session, run: Run) -> None:
    """The same call was cancelled with an effect in doubt: what is performed now may have happened before."""
    with contextlib.suppress(PerdureError):  # a damaged run that is over must not hinder a new one
        for shown in doubts_left(session.store, run):
            events.publish(events.DoubtLeft(run.run_id, run.name, shown))


def _tell_beside(session: Session, run: Run) -> None:
    """Another process executes the same call: that is allowed, and worth a line."""
    holder = session.store.read_worker(run.holder)
    if holder is not None and holder.worker_id != session.store.join().worker_id:
        events.publish(events.RunBeside(run.run_id, run.name, f"pid {holder.pid} on {holder.host}"))


def drafted(
    spec: AgentSpec,
    arguments: dict[str, Any],
    *,
    durability: Durability,
    run_id: str | None = None,
    tags: str = "",
    deadline_seconds: float = 0.0,
    lineage: tuple[Ancestor, ...] = (),
    placement: Placement | None = None,
    ready_at: float = 0.0,
    version: str = "",
) -> tuple[Run, Record]:
    """A run and its first record, not accepted by any store yet; pinned to `version`, or as the settings say."""
    now = clock.wall_seconds()
    digest = codec.digest_arguments(arguments, of=spec.name)
    where = placement or Placement()
    bare = Run(
        run_id or new_run_id(),
        new_name(),
        spec.name,
        digest,
        spec.durability or durability,
        now,
        now,
        wake_at=ready_at,
        tags=tags or spec.tags,
        queue=where.queue or spec.queue or DEFAULT_QUEUE,
        priority=where.priority or 0,
        tenant=where.tenant,
        version=version or version_to_pin(),
    )
    limit = deadline_seconds or spec.deadline_seconds
    body = Started(
        agent=spec.name,
        arguments=Raw(codec.seal_arguments(arguments, of=spec.name)),
        code=spec.code_version,
        python=platform.python_version(),
        perdure=VERSION,
        lineage=lineage,
        signals=spec.signals,
        deadline_at=now + limit if limit else 0.0,
    )
    first = Record(0, Kind.STARTED, "", spec.name, digest, now, 0, write_body(body))
    run, records = extended(bare, at=now, records=(first,))
    return run, records[0]


def _create(
    session: Session, spec: AgentSpec, arguments: dict[str, Any], request: Request
) -> tuple[Run, tuple[Record, ...]]:
    run, first = _drafted(session, spec, arguments, request)
    created, records = session.create(run, first)
    if records:
        events.publish(events.RunStarted(run.run_id, run.name, run.agent, session.store.location))
    return created, records


def _drafted(session: Session, spec: AgentSpec, arguments: dict[str, Any], request: Request) -> tuple[Run, Record]:
    return drafted(
        spec,
        arguments,
        durability=session.settings.durability,
        run_id=request.run_id,
        tags=request.tags,
        deadline_seconds=request.deadline_seconds,
        placement=request.placement,
        ready_at=ready_at(session.store, request.placement),
    )


def ready_at(store: Store, placement: Placement | None) -> float:
    """When a delayed run may begin, by the clock that all workers of the store go by; 0 where it may at once."""
    return store.now() + placement.delay_seconds if placement is not None and placement.delay_seconds else 0.0
