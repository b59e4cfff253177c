"""From a call of an agent to a held run, and from its outcome to a settled one.

Recovery goes in this order: the journal is verified, then the program replays it; effects in doubt are settled as the
replay reaches them, before anything after them in their strand. A crash at any point of it ends in the same state.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import platform
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Raw, Struct

from perdure import clock, codec, events
from perdure.engine.active import Active, Doubtful
from perdure.engine.drive import Commit, Drained, Operation, drive
from perdure.engine.failure import describe_failure, failed_calls, message_of, passed_scopes
from perdure.engine.ledger import Ledger
from perdure.engine.names import new_name, new_run_id
from perdure.engine.session import Session, heed
from perdure.engine.signature import shown_call
from perdure.engine.undo import undo_flow
from perdure.errors import (
    LeaseLost,
    RunCancelled,
    RunHeld,
    RunPaused,
    RunRestarted,
    RunSuspended,
    Signal,
    StoreError,
    UnknownRun,
    UnstorableValue,
    UsageError,
)
from perdure.policy import is_recent
from perdure.records import (
    FINISHED,
    Ancestor,
    Delivery,
    Durability,
    Ended,
    Kind,
    Mail,
    Opened,
    Record,
    Run,
    RunState,
    Started,
    WaitReason,
    extended,
    read_body,
    write_body,
)
from perdure.replay import Journal, left_over
from perdure.store.lease import Park, held, read_park, write_park
from perdure.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Generator

    from perdure.engine.agent import AgentSpec
    from perdure.store.protocol import Store

T = TypeVar("T")
UNDONE = "undone"
CONTINUED = "continued"
_HANDED_ON = frozenset({"cancel", "pause", "unpause", "signal"})
"""Mail to a run that goes on as another one is meant for that."""

_RUN_ID_CHARACTERS = 200
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
    if known is None:
        known, is_new = _create(session, spec, arguments, request)
        if is_new:
            return load(session, known)
    if request.run_id is not None:
        _refuse_other_request(known, spec, digest, arguments, fresh=request.fresh)
    return open_run(session, spec, known)


def open_run(
    session: Session, spec: AgentSpec, run: Run, *, pardon: bool = False, quietly: bool = False
) -> Active | Finished:
    """Claim a run and load its journal; a completed one is answered from its record.

    `quietly` where this process waited for the run itself: nobody needs to be told that it goes on.
    """
    if not pardon:
        _refuse_paused(session, run)
    if run.state not in FINISHED:
        run = session.claim(run.run_id, pardon=pardon)
        if run.state in FINISHED:
            session.release(run.run_id)
    if run.state == RunState.COMPLETED:
        if continuation(run):
            last = newest(session.store, run.run_id)
            if last is None:
                raise vanished(continuation(run))
            return open_run(session, spec, last, pardon=pardon, quietly=quietly)
        return Finished(run, recorded_result(session, spec, run))
    if run.state == RunState.CANCELLED:
        raise UsageError(
            f"Run {run.name} was cancelled.",
            safe="nothing was done.",
            hint="start over with fresh=True, or under another run_id",
        )
    return load(session, run, quietly=quietly)


def _refuse_paused(session: Session, run: Run) -> None:
    if is_paused(session.store, run):
        park = read_park(run)
        raise RunPaused(park.message, safe=park.safe, hint=park.hint)


def is_paused(store: Store, run: Run) -> bool:
    """Whether somebody paused the run, and nobody has let it go on since."""
    return read_park(run).code == RunPaused.code and not any(
        mail.kind == "unpause" and mail.mail_id > run.heard for mail in store.read_mail(run.run_id)
    )


def continuation(run: Run) -> str:
    """The id of the run that goes on in place of this one; empty where none does."""
    park = read_park(run)
    return park.message if park.code == CONTINUED else ""


def known_run(store: Store, run_id: str) -> Run:
    """The run that has this id; raises where there is none any more."""
    run = store.read_run(run_id)
    if run is None:
        raise vanished(run_id)
    return run


def vanished(run_id: str) -> UnknownRun:
    """A run that was there has gone."""
    return UnknownRun(f"There is no run {run_id!r} any more.", hint="it may have been pruned, or the store replaced")


def described_state(store: Store, run_id: str) -> str:
    """The run's state, with its reason where it waits."""
    found = newest(store, run_id) or known_run(store, run_id)
    return f"{found.state} ({found.reason})" if found.reason else found.state


def load(session: Session, run: Run, *, quietly: bool = False) -> Active:
    """The held run with its journal, verified; from here on its lease is kept alive."""
    try:
        records = session.store.load_journal(run.run_id)
        journal = Journal(records, suspects=run.suspects)
        active = Active(session.store, session.writer, run, journal, before="" if quietly else _before(records))
        active.deadline_at = journal.started().deadline_at
        active.resources = Ledger(records)
        session.hold(active)
        heed(active)
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
        raise active.diverge(
            shown_call(spec.name, {}) + f" with {codec.describe(started.arguments)}", str(error)
        ) from error


def outcome(active: Active, spec: AgentSpec, error: BaseException) -> Generator[Operation, Any, BaseException]:
    """What an exception that left the agent means for the run, written down, and what its caller sees."""
    if isinstance(error, RunRestarted) and active.signal is None:
        return (yield from _restart(active, spec, error))
    if active.signal is not None:
        stopped = yield from _stopped(active)
        from_outside = isinstance(error, (KeyboardInterrupt, SystemExit, asyncio.CancelledError))
        return error if from_outside and not active.was_interrupted else stopped
    if isinstance(error, Exception):
        return (yield from fail(active, spec, error))
    with contextlib.suppress(Signal, StoreError):  # the run stays resumable even where this cannot be written
        yield from _end(
            active, Ended(state=RunState.QUEUED, code="interrupted", message="its process was asked to stop")
        )
    return error


def settled(active: Active, flow: Generator[Operation, Any, T]) -> Generator[Operation, Any, T]:
    """Run the end of a run; a signal that arrives while it is written down becomes the error that explains it."""
    try:
        return (yield from flow)
    except RunCancelled:
        raise
    except Signal as signal:
        raise (active.stop.error if active.stop is not None else _taken_over(active)) from signal


def complete(active: Active, spec: AgentSpec, value: Any) -> Generator[Operation, Any, Any]:
    """The agent returned: record the outcome, unless something stopped the run underneath it."""
    yield Drained(active)
    if active.signal is None:
        _notice_loose_ends(active)
    if active.signal is not None:
        raise (yield from _stopped(active))
    try:
        sealed, decoded = codec.seal_faithfully(value, spec.signature.returns, what="result")
    except UnstorableValue as error:
        failure = UnstorableValue(
            f"The result of {spec.name} cannot be saved: {error.message}",
            safe=f"the {active.row.steps} completed steps of run {active.row.name} are saved.",
            hint=f"{error.hint}; then start again",
        )
        raise (yield from fail(active, spec, failure)) from None
    raw, blob, stored = active.stored_value(sealed)
    yield from _end(active, Ended(state=RunState.COMPLETED, value=raw, blob=blob), stored=stored)
    return decoded


def fail(active: Active, spec: AgentSpec, error: Exception) -> Generator[Operation, Any, BaseException]:
    """The agent raised: record the failure, undo if asked to, and give back what the caller should see."""
    yield Drained(active)
    if active.signal is not None:
        return (yield from _stopped(active))
    undone = False
    if spec.undo_on_failure:
        try:
            undone = (yield from undo_flow(active)) > 0
        except Signal:
            return (yield from _stopped(active))
        except Exception as second:  # noqa: BLE001 - the agent's own failure is what its caller must see
            undone = True
            error.add_note(f"perdure: not everything could be undone: {type(second).__name__}: {message_of(second)}")
    reopened = () if undone else failed_calls(active, error)
    ended = Ended(
        state=RunState.FAILED,
        failure=describe_failure(error),
        reopened=reopened,
        passed=passed_scopes(active, reopened),
        undone=undone,
        code=UNDONE if undone else "failed",
    )
    park = Park(code=ended.code, message=f"{type(error).__name__}: {message_of(error)}")
    yield from _end(active, ended, park=park)
    return error


def _before(records: list[Record]) -> str:
    """What became of the delivery before this one; empty for the first."""
    deliveries = [record for record in records if record.kind == Kind.DELIVERY]
    if len(deliveries) < 2:  # noqa: PLR2004 - the first delivery resumes nothing
        return ""
    last: Delivery = read_body(deliveries[-1])
    return last.before or "it was stopped"


def _checked_id(run_id: str) -> str:
    if not isinstance(run_id, str):
        raise UsageError(f"run_id {codec.describe(run_id)} is not a text.", hint='run_id="a-name-of-yours"')
    if not run_id or len(run_id) > _RUN_ID_CHARACTERS or not run_id.isprintable() or run_id != run_id.strip():
        raise UsageError(
            f"run_id {run_id[:50]!r} is not usable.",
            hint=f"1 to {_RUN_ID_CHARACTERS} printable characters, without spaces around it",
        )
    return run_id


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
        if run.state in FINISHED:
            continue
        if session.is_running(run):
            _tell_beside(session, run)
            continue
        if run.state == RunState.FAILED and (number > 0 or read_park(run).code == UNDONE):
            continue
        if is_recent(run, now=now) or run.reason in _LONG_WAITS:
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
) -> tuple[Run, Record]:
    """A run and its first record, not accepted by any store yet."""
    now = clock.wall_seconds()
    digest = codec.digest_arguments(arguments, of=spec.name)
    bare = Run(
        run_id or new_run_id(),
        new_name(),
        spec.name,
        digest,
        spec.durability or durability,
        now,
        now,
        tags=tags or spec.tags,
    )
    limit = deadline_seconds or spec.deadline_seconds
    body = Started(
        agent=spec.name,
        arguments=Raw(codec.seal_arguments(arguments, of=spec.name)),
        code=spec.code_version,
        python=platform.python_version(),
        perdure=VERSION,
        lineage=lineage,
        deadline_at=now + limit if limit else 0.0,
    )
    first = Record(0, Kind.STARTED, "", spec.name, digest, now, 0, write_body(body))
    run, records = extended(bare, at=now, records=(first,))
    return run, records[0]


def _create(session: Session, spec: AgentSpec, arguments: dict[str, Any], request: Request) -> tuple[Run, bool]:
    run, first = drafted(
        spec,
        arguments,
        durability=session.settings.durability,
        run_id=request.run_id,
        tags=request.tags,
        deadline_seconds=request.deadline_seconds,
    )
    created, is_new = session.create(run, first)
    if is_new:
        events.publish(events.RunStarted(run.run_id, run.name, run.agent, session.store.location))
    return created, is_new


def _notice_loose_ends(active: Active) -> None:
    """A finished program must have made every recorded call, and left no effect open."""
    for key, (name, shown) in list(active.open_effects.items()):
        active.doubt(Doubtful(key, name, shown, "it was interrupted before it was confirmed"))
    if active.doubtful:
        active.suspend()
        return
    entry = left_over(active.journal, active.unvisited)
    if entry is not None:
        active.diverge(entry.shown_call(), "(the agent returned without making this call)")


def _stopped(active: Active) -> Generator[Operation, Any, BaseException]:
    """Write down why the run stopped, where that may still be written, and build what its caller sees."""
    signal, stop = active.signal, active.stop
    if isinstance(signal, RunCancelled):
        yield from end_cancelled(active)
        return signal
    if isinstance(signal, LeaseLost) or stop is None:
        return _taken_over(active)
    error = stop.error
    park = Park(code=error.code, message=error.message, safe=error.safe, hint=error.hint)
    if stop.state is RunState.FAILED:
        _cancel_children(active)
        yield from _end(active, Ended(state=stop.state, failure=describe_failure(error), code=error.code), park=park)
    elif not isinstance(error, StoreError):
        reason = stop.reason or (WaitReason.PARKED if stop.state is RunState.WAITING else "")
        ended = Ended(state=stop.state, reason=reason, code=error.code, message=error.message, hint=error.hint)
        heard = max((mail.mail_id for mail in active.mail()), default=0) if stop.heard is None else stop.heard
        yield from _end(active, ended, park=park, taken=stop.taken, wake_at=stop.wake_at, heard=heard)
    return error


def end_cancelled(active: Active) -> Generator[Operation, Any, None]:
    """Tell the children, then record that the run was cancelled; told twice after a crash, they hear it once."""
    _cancel_children(active)
    taken = tuple(mail.mail_id for mail in active.mail() if mail.kind == "cancel")
    yield from _end(active, Ended(state=RunState.CANCELLED), taken=taken)


def _cancel_children(active: Active) -> None:
    for child in open_children(active):
        cancel_child(active.store, child.run_id, by=active.row.name)


def end_if_free(session: Session, run: Run) -> None:
    """End a cancelled run that nobody holds, and its children; one that somebody took meanwhile hears of it there."""
    if session.is_running(run):
        return
    try:
        taken = session.claim(run.run_id, pardon=True)
    except RunHeld:
        return
    if taken.state in FINISHED:
        session.release(run.run_id)
        return
    active = load(session, taken)
    try:
        drive(end_cancelled(active))
    finally:
        session.release(run.run_id)
    end_free_children(session, active)


def end_free_children(session: Session, active: Active) -> None:
    """End the children of a cancelled run that nobody holds, such as those that wait for a person."""
    for child in open_children(active):
        end_if_free(session, child)


def open_children(active: Active) -> list[Run]:
    """The children that the run started and has no outcome of, where they have not ended by themselves."""
    entries = Journal(active.store.load_journal(active.row.run_id)).entries.values()
    waits: list[Opened] = [read_body(entry.wait) for entry in entries if entry.wait and not entry.completion]
    found = [newest(active.store, wait.child) for wait in waits if wait.child]
    return [child for child in found if child is not None and child.state not in FINISHED]


def newest(store: Store, run_id: str) -> Run | None:
    """The run of this id, or the one that goes on in its place."""
    run = store.read_run(run_id)
    while run is not None and (following := continuation(run)):
        run = store.read_run(following)
    return run


def failure_of(run: Run) -> str:
    """Which failure of the run this is, as each delivery can fail once; empty where it has not failed."""
    return f"{run.run_id}@{run.epoch}" if run.state == RunState.FAILED else ""


def cancel_child(store: Store, run_id: str, *, by: str) -> None:
    """Ask a run to end; its holder, or whoever looks at it next, does that."""
    run = newest(store, run_id)
    if run is not None and run.state not in FINISHED:
        store.post(Mail(0, run.run_id, "cancel", "", "{}", by, clock.wall_seconds()))


def _restart(active: Active, spec: AgentSpec, signal: RunRestarted) -> Generator[Operation, Any, BaseException]:
    """Accept the run that goes on, then end this one: a crash in between ends in the same two."""
    yield Drained(active)
    active.read(heed, active)
    if active.signal is None:
        _notice_loose_ends(active)
    if active.signal is not None:
        return (yield from _stopped(active))
    row, started = active.row, active.journal.started()
    try:
        arguments = spec.signature.bind(*signal.arguments)
        run, first = drafted(
            spec, arguments, durability=row.durability, run_id=next_id(row.run_id), tags=row.tags,
            deadline_seconds=started.deadline_at and started.deadline_at - row.created_at, lineage=started.lineage,
        )  # fmt: skip
    except (TypeError, UnstorableValue) as error:
        return (yield from fail(active, spec, error))
    signal.next_id = run.run_id
    active.read(active.store.create_run, run, first)
    taken = active.read(_hand_on, active, run.run_id)
    park = Park(code=CONTINUED, message=run.run_id)
    yield from _end(active, Ended(state=RunState.COMPLETED, continued=run.run_id), park=park, taken=taken)
    active.read(_hand_on, active, run.run_id)  # what was posted while the end was written
    return signal


def _hand_on(active: Active, run_id: str) -> tuple[int, ...]:
    """Give mail that this run did not take to the one that goes on; given before a crash, it is not given twice."""
    mails = [mail for mail in active.mail() if mail.kind in _HANDED_ON]
    known = {(mail.kind, mail.key, mail.body, mail.by, mail.at) for mail in active.store.read_mail(run_id)}
    for mail in mails:
        if (mail.kind, mail.key, mail.body, mail.by, mail.at) not in known:
            active.store.post(Mail(0, run_id, mail.kind, mail.key, mail.body, mail.by, mail.at))
    return tuple(mail.mail_id for mail in mails)


def next_id(run_id: str) -> str:
    """The id of the run that goes on in place of this one."""
    base, mark, number = run_id.rpartition("~")
    return f"{base}~{int(number) + 1}" if mark and number.isdecimal() else f"{run_id}~2"


def _taken_over(active: Active) -> RunHeld:
    """Another worker has this run now, or had it and is done with it."""
    run = active.store.read_run(active.row.run_id)
    if run is None or not run.holder:
        return RunHeld(
            f"Run {active.row.name} was taken over by another worker.",
            safe="nothing more is performed or recorded here.",
            hint=f"perdure show {active.row.name}",
        )
    return held(run, active.store.read_worker(run.holder))


def _tell_parent(active: Active) -> None:
    """Wake a parent that left memory. Told before the end is recorded: one told too early just looks once more."""
    lineage = active.journal.started().lineage
    if lineage:
        parent, child = lineage[-1].run_id, active.row.run_id
        with contextlib.suppress(UnknownRun):  # a parent that is gone needs no waking
            active.read(active.store.post, Mail(0, parent, "child", child, "{}", active.row.name, clock.wall_seconds()))


def _end(
    active: Active,
    ended: Ended,
    *,
    park: Park | None = None,
    stored: tuple[tuple[bytes, bytes], ...] = (),
    taken: tuple[int, ...] = (),
    wake_at: float = 0.0,
    heard: int = 0,
) -> Generator[Operation, Any, None]:
    detail = write_park(park) if park else ""
    if ended.state in FINISHED or ended.state == RunState.FAILED:
        _tell_parent(active)
    ticket, _ = active.submit(
        Kind.ENDED,
        None,
        ended,
        power=True,
        stored=stored,
        taken=taken,
        state=ended.state,
        reason=ended.reason,
        detail=detail,
        holder="",
        deliveries=0,
        steps=active.row.steps - len(ended.reopened),
        wake_at=wake_at,
        heard=heard,
    )
    yield Commit(active, ticket)
    row = active.row
    active.signal = active.signal or RunSuspended(f"Run {row.name} has ended here.")
    events.publish(events.RunEnded(row.run_id, row.name, ended.state, ended.reason, row.steps))
