"""One process and one store: the open store, its writer, the runs held here, and how they are told to stop."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from perdure import clock, events
from perdure.bodies import Ended, write_body
from perdure.engine.active import Stop
from perdure.engine.news import News
from perdure.engine.scope import carriers
from perdure.engine.upkeep import Upkeep
from perdure.errors import (
    CommitsLost,
    LeaseLapsed,
    LeaseLost,
    PerdureError,
    RunCancelled,
    RunHeld,
    RunPaused,
    RunWaits,
    StoreError,
    saved_steps,
)
from perdure.records import Append, Kind, Record, RunState, WaitReason, extended
from perdure.settings import Settings, current_settings
from perdure.store import open_settings
from perdure.store.lease import Presence, claim, held
from perdure.store.protocol import Terms
from perdure.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.engine.active import Active
    from perdure.records import Run


class Session:
    """What this process shares between its runs on one store."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = open_settings(settings)
        self.writer = Writer(self.store)
        self._held: dict[str, Active | None] = {}
        self._stopped: set[str] = set()
        self._left: dict[str, int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.upkeep = Upkeep(self)
        self.news = News(self)
        lost = self.store.noticed
        if lost:
            self.store.close()
            raise CommitsLost(
                f"{self.store.location} lost {lost} of the records it had acknowledged: it was cut, or an older copy.",
                safe="nothing was started; the loss is recorded, and the unfinished runs that are left are parked.",
                hint="perdure ls tells what is left; a run that is gone would perform its effects again, if started",
            )
        if self.store.created:
            events.publish(events.StoreOpened(self.store.location, created=True))

    def claim(
        self,
        run_id: str,
        *,
        pardon: bool = False,
        deliveries: int | None = None,
        gated: bool = False,
        head: bytes | None = None,
    ) -> Run:
        """Take a run for this process; one that another strand of this process holds is refused like anybody else's.

        With `head`, only if nobody has written to its journal since that was its end.
        """
        worker = self.store.join()
        self._reserve(run_id)
        since = clock.boot_seconds()
        try:
            terms = self._terms(pardon=pardon, deliveries=deliveries, gated=gated, head=head)
            run = self.store.claim_run(run_id, worker.worker_id, terms)
        except BaseException as error:
            # A store that is asked again because its first answer was lost finds that somebody wrote there: it did.
            is_unsure = isinstance(error, StoreError) or (isinstance(error, RunHeld) and head is not None)
            (self._leave_unsure if is_unsure else self._forget)(run_id)
            raise
        self._begin_upkeep(since)
        return run

    def create(self, run: Run, first: Record) -> tuple[Run, tuple[Record, ...]]:
        """Accept a run that this process holds from its first record on, and its journal; else the row its id has."""
        worker = self.store.join()
        self._reserve(run.run_id)
        since = clock.boot_seconds()
        try:
            claimed = claim(run, worker, None, Presence.NONE, self._terms())
            created = self.store.create_run(claimed.run, first, claimed=claimed.records)
        except StoreError:
            self._leave_unsure(run.run_id)
            raise
        except BaseException:
            self._forget(run.run_id)
            raise
        if created.digest != claimed.run.digest:
            self._forget(run.run_id)
            return created, ()
        self._begin_upkeep(since)
        return created, (first, *claimed.records)

    def is_running(self, run: Run) -> bool:
        """Whether somebody executes this run now; one this process failed to give back is not executed by anybody."""
        if run.holder and run.holder == self.store.join().worker_id:
            return run.run_id in self._held
        return self.store.is_running(run, stall_seconds=self.settings.stall_seconds)

    def hold(self, active: Active) -> None:
        """Keep the lease of this run alive until it is released."""
        with self._lock:
            self._stopped.discard(active.row.run_id)
            self._held[active.row.run_id] = active
            active.mind_lease = functools.partial(self._mind_lease, active)

    def release(self, run_id: str) -> None:
        """Be done with the run in this process; one whose end the store was not told of is given back later."""
        active = self._held.get(run_id)
        is_over = active is not None and (active.has_ended or isinstance(active.signal, LeaseLost))
        with self._lock:
            self._held.pop(run_id, None)
            if not is_over and not self._ended.is_set():
                self._left[run_id] = int(active is not None)  # one that could not even be loaded counts as delivered
        carriers.release()

    @property
    def needs_upkeep(self) -> bool:
        """Whether this process holds anything, by its own knowledge or by the store's."""
        return bool(self._held or self._left)

    def lapse(self) -> None:
        """The store cannot be reached to renew: every run stops, before others may take it, to go on once it can."""
        for active in self._held_runs():
            self._lapse(active)
            if active.interrupt is not None and active.stop is not None and isinstance(active.stop.error, LeaseLapsed):
                active.interrupt()

    def _mind_lease(self, active: Active) -> None:
        if not self.upkeep.holds():
            self._lapse(active)

    def _lapse(self, active: Active) -> None:
        why = f"Run {active.row.name} stopped, because {self.store.location} could not be reached to renew its lease."
        lapsed = LeaseLapsed(why, safe=f"{saved_steps(active.row.steps)}.", hint="it goes on once the store is back")
        active.halt(Stop(RunState.QUEUED, None, lapsed))

    def give_back(self) -> None:
        """Free the runs that are not executed here any more and still have this process for their holder."""
        for run_id, forgiven in list(self._left.items()):
            run = self.store.read_run(run_id)
            is_left = run is not None and run.state == RunState.RUNNING and run_id not in self._held
            is_ours = run is not None and is_left and run.holder == self.store.join().worker_id
            if run is None or not is_ours or self._free(run, deliveries=max(0, run.deliveries - forgiven)):
                self._left.pop(run_id, None)

    def deliver_mail(self) -> None:
        """Tell held runs what others wrote to them, and that their time is over."""
        for active in self._held_runs():
            heed(active)
            is_late = active.stop is not None and active.stop.state is RunState.FAILED
            if is_late or isinstance(active.signal, RunCancelled):
                self._force(active)

    def ring(self, run_id: str) -> None:
        """Let a run held here look again at what it waits for."""
        active = self._held.get(run_id)
        if active is not None:
            active.ring()

    def stop_below(self, run_id: str) -> None:
        """The run was stopped with its process: its children here stop at their next call, to be resumed with it."""
        self._stopped.add(run_id)
        for active in self._held_runs():
            if any(ancestor.run_id == run_id for ancestor in active.journal.started().lineage):
                self._stop(active, f"Run {active.row.name} was stopped with its parent.")

    def stop_all(self) -> None:
        """The process was asked to stop: every run here stops at its next call, to be resumed by another."""
        for active in self._held_runs():
            self._stop(active, "its process was asked to stop")

    def holds_any(self, runs: frozenset[str]) -> bool:
        """Whether any of these runs is held here; one without a name may be any."""
        return bool(self._held) and ("" in runs or not runs.isdisjoint(self._held))

    def _stop(self, active: Active, why: str) -> None:
        self._stopped.add(active.row.run_id)
        stopped = RunWaits(why, safe=f"{saved_steps(active.row.steps)}.")
        active.halt(Stop(RunState.QUEUED, None, stopped))

    def held(self) -> list[Active | None]:
        """The runs that are held here; none in place of one that is just being opened."""
        with self._lock:
            return list(self._held.values())

    def _held_runs(self) -> list[Active]:
        with self._lock:
            return [active for active in self._held.values() if active is not None]

    def is_stopped(self, run_id: str) -> bool:
        """Whether this run was stopped here, and not taken up again since."""
        return run_id in self._stopped

    def has_ended(self, seconds: float) -> bool:
        """Wait so long, unless the session ends before; whether it did."""
        return self._ended.wait(seconds)

    def _force(self, active: Active) -> None:
        """End a body that does not heed a cancel or a deadline within its grace, where Python allows that."""
        now = clock.boot_seconds()
        active.asked_to_stop_at = active.asked_to_stop_at or now
        if active.interrupt is not None and now - active.asked_to_stop_at >= self.settings.cancel_grace_seconds:
            active.interrupt()

    def close(self) -> None:
        """Let go of the store; runs still held stop at their next write."""
        self._ended.set()
        self.news.wake_all()
        self.store.close()

    def _begin_upkeep(self, since: float) -> None:
        """A claim is a sign of life; from here on more are needed."""
        carriers.acquire()
        self.upkeep.acknowledge(since)
        self.upkeep.begin()

    def _free(self, run: Run, *, deliveries: int) -> bool:
        """End a delivery that nobody executes: the claim fences whatever of it may still be on its way.

        False where somebody wrote there meanwhile: it must be looked at again.
        """
        try:
            run = self.claim(run.run_id, pardon=True, head=run.head)
        except RunHeld:
            return False
        try:
            body = Ended(state=RunState.QUEUED, code=LeaseLapsed.code, message="its process had to let go of it")
            now = clock.wall_seconds()
            record = Record(run.length, Kind.ENDED, "", run.agent, b"", now, run.epoch, write_body(body))
            after, records = extended(
                run, at=now, records=(record,), state=RunState.QUEUED, holder="", deliveries=deliveries
            )
            self.writer.wait(self.writer.submit(Append(after, records)))
        except LeaseLost:
            return False
        else:
            return True
        finally:
            self._forget(run.run_id)
            carriers.release()

    def _terms(
        self, *, pardon: bool = False, deliveries: int | None = None, gated: bool = False, head: bytes | None = None
    ) -> Terms:
        return Terms(deliveries or self.settings.deliveries, self.settings.stall_seconds, pardon, gated, head)

    def _reserve(self, run_id: str) -> None:
        with self._lock:
            if run_id in self._held:
                raise self._held_here(run_id)
            self._held[run_id] = None

    def _forget(self, run_id: str) -> None:
        with self._lock:
            self._held.pop(run_id, None)

    def _leave_unsure(self, run_id: str) -> None:
        """The store may have given the run to this process and failed to say so: if it did, it is given back later."""
        with self._lock:
            self._held.pop(run_id, None)
            self._left[run_id] = 1
        self.upkeep.begin()

    def _held_here(self, run_id: str) -> RunHeld:
        run = self.store.read_run(run_id)
        if run is None:
            return RunHeld(f"Run {run_id} is being started by another thread of this process.", hint="wait for it")
        return held(run, self.store.read_worker(run.holder))


def heed(active: Active) -> None:
    """Stop a run at its next call if its mailbox or its deadline asks for that; let its waits look at what is new."""
    active.heed_deadline()
    if active.signal is not None:
        return
    name = active.row.name
    mails = active.mail()
    if any(mail.kind == "cancel" for mail in mails):
        active.signal = RunCancelled(f"Run {name} was cancelled.")
        return
    pauses = [mail for mail in mails if mail.kind in ("pause", "unpause")]
    if pauses and pauses[-1].kind == "pause":
        paused = RunPaused(
            f"Run {name} was paused by {pauses[-1].by}.",
            safe=f"{saved_steps(active.row.steps)}.",
            hint=f"perdure unpause {name}, then start again",
        )
        taken, heard = tuple(mail.mail_id for mail in pauses), max(mail.mail_id for mail in mails)
        active.halt(Stop(RunState.WAITING, WaitReason.PARKED, paused, heard=heard, taken=taken))
        return
    if active.waits:
        active.ring()


_sessions: dict[str, Session] = {}
_inherited: list[Session] = []
_refusals: list[PerdureError] = []
_standins: list[Session] = []
_opening = threading.Lock()


def session() -> Session:
    """The session of the store that the settings name, opened when first asked for."""
    if _refusals:
        raise _refusals[-1]
    if _standins:
        return _standins[-1]
    settings = current_settings()
    is_path = not settings.store.startswith("memory:") and "://" not in settings.store
    where = str(Path(settings.store).expanduser().absolute()) if is_path else settings.store
    with _opening:
        found = _sessions.get(where)
        if found is None or found.settings != settings:
            found = _sessions[where] = _reopened(found, settings)
        return found


@contextlib.contextmanager
def refusing_runs(error: PerdureError) -> Iterator[None]:
    """No run can begin in this process meanwhile: code is being loaded, not started."""
    _refusals.append(error)
    try:
        yield
    finally:
        _refusals.remove(error)


@contextlib.contextmanager
def standing_in(other: Session) -> Iterator[None]:
    """Let everybody get this session meanwhile, whatever the settings name: a run is rehearsed, not executed."""
    _standins.append(other)
    try:
        yield
    finally:
        _standins.remove(other)


def open_sessions() -> list[Session]:
    """Every session of this process."""
    with _opening:
        return list(_sessions.values())


def close_sessions(location: str | None = None) -> None:
    """Close every store this process has open, or the one at this location."""
    with _opening:
        for where, opened in list(_sessions.items()):
            if location in (None, opened.settings.store):
                opened.close()
                del _sessions[where]


def _reopened(before: Session | None, settings: Settings) -> Session:
    if before is None:
        return Session(settings)
    before.settings = settings
    return before


def _after_fork() -> None:
    """What a forked child inherited is never used or closed in the parent's name."""
    global _opening  # noqa: PLW0603 - the parent's lock may have been held by a thread that does not exist here
    _inherited.extend(_sessions.values())
    _sessions.clear()
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close_sessions)
