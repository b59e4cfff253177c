"""The parent of a worker: starts it in a process of its own, learns how that ends, keeps the cause, and starts another.

It never loads code of the user's and never opens the store: whatever could end a process ends one of its children.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure import clock, events
from perdure.asked import STOPS, Asked
from perdure.errors import PerdureError, UsageError
from perdure.settings import Settings
from perdure.store import open_settings
from perdure.worker.aftermath import (
    BEGINS,
    ENDED,
    GOOD_WHILE_SECONDS,
    LOADS,
    Again,
    AwaitChange,
    Leave,
    Plan,
    decide,
    why_none,
)
from perdure.worker.child import OVERDUE_SECONDS, Child
from perdure.worker.death import Famine, cause_of
from perdure.worker.line import Line
from perdure.worker.reload import GRACE_SECONDS, POLL_SECONDS, Watch, forget_bytecode
from perdure.worker.standin import Standin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

INTERRUPTED: Final = 130
"""The exit code of a worker that was asked twice to end, and left at once."""

_ASKED_TWICE: Final = "asked twice to end, so it left at once"
_LOOK_SECONDS: Final = 1.0
_READ_BYTES: Final = 65536


class Left(Struct, frozen=True):
    """All is over: the exit code, and what the workers did."""

    exit_code: int
    worker_id: str = ""
    runs: int = 0
    left: tuple[str, ...] = ()
    deaths: int = 0
    error: PerdureError | None = None
    """What to say, where the worker itself could not."""


class Supervisor:
    """Starts workers, one after the other, until one ends because it was asked to."""

    def __init__(self, plan: Plan, listener: socket | None = None) -> None:
        self._plan = plan
        self._standin = Standin(listener)
        self._why = BEGINS
        self._before: dict[int, Any] = {}
        self._asked = Asked()
        self._told = 0
        self._reloading = False
        self._watch = Watch()
        self._famine = Famine()
        self._recorders: set[int] = set()
        self._deaths = self._row = self._runs = 0
        self._worker_id = self._declared = ""
        self._error: PerdureError | None = None

    def run(self) -> Line | Left:
        """In each worker's process, its line to us, as soon as it is started; in this one, how it all ended."""
        with self._heeding() as wakes:
            while True:
                child = self._start(wakes)
                if isinstance(child, Line):
                    return child
                self._why = LOADS
                status = self._wait_for(child, wakes)
                decision = self._account_for(child, status)
                self._why = why_none(child, decision)
                match decision:
                    case Leave(code):
                        return self._leave(child, INTERRUPTED if self._asked.is_impatient else code)
                    case Again(seconds):
                        is_over = self._pause(wakes, seconds)
                    case AwaitChange():
                        is_over = self._await_change(wakes)
                if is_over:
                    return self._leave(child, 0)

    def _start(self, wakes: int) -> Child | Line:
        """Fork a worker; in it, its line to us."""
        self._reloading = False
        child_hears, we_tell = os.pipe()
        we_hear, child_tells = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = self._fork(wakes)
        if not pid:
            os.close(we_tell)
            os.close(we_hear)
            self._famine.close()
            self._standin.hang_up()
            return Line(hears=child_hears, tells=child_tells, parent=parent, declared=self._declared)
        os.close(child_hears)
        os.close(child_tells)
        os.set_blocking(we_hear, False)
        return Child(pid, hears=we_hear, tells=we_tell)

    def _fork(self, wakes: int) -> int:
        """Fork; a system that lacks the room just now is asked again."""
        while True:
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # the child must not note what is meant to end it
            try:
                pid = os.fork()
                if not pid:
                    self._heed_as_child()
            except OSError:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                if self._pause(wakes, _LOOK_SECONDS):
                    raise
            else:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                return pid

    def _wait_for(self, child: Child, wakes: int) -> int:
        """The wait status of this worker, once it has one."""
        looked_at = changed_at = clock.boot_seconds()
        while True:
            self._listen(child)
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._listen(child)
                return status
            self._obey(child)
            now = clock.boot_seconds()
            if child.kill_at and now >= child.kill_at:
                child.kill("killed because it did not end in time")
            if now - looked_at >= _LOOK_SECONDS:
                looked_at = now
                self._famine.look()
                self._reap(child.pid)
            if self._plan.reload and now - changed_at >= POLL_SECONDS:
                changed_at = now
                self._heed_change(child)
            self._why = ENDED if child.ended is not None else self._why
            self._rest((wakes,) if child.is_silent else (wakes, child.hears), POLL_SECONDS, serves=child.serves)

    def _rest(self, ends: tuple[int, ...], seconds: float, *, serves: bool = False) -> None:
        """Wait until something has come, or so long; who asks for the worker's health is answered if it does not."""
        if serves:
            self._standin.hang_up()
        select.select((*ends, *(() if serves else self._standin.ends)), [], [], max(0.0, min(seconds, POLL_SECONDS)))
        _drink(ends[0])
        if not serves:
            self._standin.answer(self._why)

    def _listen(self, child: Child) -> None:
        for loaded in child.heard():
            self._watch.add(loaded.path, since=child.began_wall)

    def _obey(self, child: Child) -> None:
        """Pass on what we were asked: first to drain, then to leave at once."""
        if self._asked.times <= self._told:
            return
        number, self._told = self._asked.last, self._asked.times
        if self._asked.is_impatient:
            child.kill(_ASKED_TWICE)
        elif child.is_ready:
            child.ask_to_drain(self._plan.grace_seconds)
        else:
            os.kill(child.pid, number)  # there is nothing to finish, and loading may take for ever
            child.expect_end(self._plan.grace_seconds)

    def _heed_change(self, child: Child) -> None:
        if self._has_changed() and not self._asked.times and not self._reloading:
            self._reloading = True
            if child.is_ready:
                child.ask_to_drain(min(GRACE_SECONDS, self._plan.grace_seconds))
            else:
                os.kill(child.pid, signal.SIGTERM)

    def _has_changed(self) -> bool:
        changed = self._watch.changed()
        for path in changed:
            forget_bytecode(path)
        if changed:
            events.publish(events.CodeChanged(tuple(changed)))
        return bool(changed)

    def _account_for(self, child: Child, status: int) -> Again | AwaitChange | Leave:
        """Keep and tell how it ended, and decide what follows."""
        child.close()
        self._runs += child.runs
        self._worker_id = child.worker_id or self._worker_id
        self._declared = child.declared or self._declared
        has_died = child.is_ready and child.ended is None
        if has_died:
            lived = clock.boot_seconds() - child.began_at
            self._row = 1 if child.has_finished or lived >= GOOD_WHILE_SECONDS else self._row + 1
            self._deaths += 1
        elif self._row and not child.is_ready:
            self._row += 1  # the pauses grow also where it does not even begin
        has_left = bool(self._asked.times) and os.waitstatus_to_exitcode(status) == INTERRUPTED
        if self._asked.is_impatient or has_left:  # the worker may have heard it by itself, and left before we heard it
            child.killed_for = _ASKED_TWICE
        asked, reloading = bool(self._asked.times), self._reloading
        decision = decide(child, status, deaths=self._row, asked=asked, reloading=reloading, plan=self._plan)
        cause = child.killed_for or cause_of(status, starved=self._famine.took(child.pid, status))
        if has_died:
            self._record(child.worker_id, cause)
            seconds = decision.seconds if isinstance(decision, Again) else None
            events.publish(events.WorkerDied(child.worker_id, child.pid, cause, seconds))
        elif not (child.ended or child.has_refused or asked or reloading):
            self._tell_stillborn(child, cause, decision)
        return decision

    def _tell_stillborn(self, child: Child, cause: str, decision: Again | AwaitChange | Leave) -> None:
        if isinstance(decision, Leave):
            self._error = _stillborn(self._plan.code, cause)
        else:
            events.publish(events.WorkerDied("", child.pid, cause, None))

    def _record(self, worker_id: str, cause: str) -> None:
        """Let a process of its own write the cause down: a store that hangs must not hold up the next worker."""
        try:
            pid = os.fork()
        except OSError:
            return  # its runs go on all the same
        if pid:
            self._recorders.add(pid)
            return
        with contextlib.suppress(BaseException):
            record_death(self._plan.settings, worker_id, cause)
        os._exit(0)

    def _reap(self, worker: int = 0) -> None:
        """Let go of every process of ours that has ended but the worker; the first in a container inherits others'."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid == worker:
                    return
                os.waitpid(ended.si_pid, 0)
                self._recorders.discard(ended.si_pid)
            return
        self._recorders.clear()

    def _pause(self, wakes: int, seconds: float) -> bool:
        """Wait so long; whether we were asked to end meanwhile."""
        until = clock.boot_seconds() + seconds
        while not self._asked.times:
            self._rest((wakes,), until - clock.boot_seconds())
            if clock.boot_seconds() >= until:
                break
        return bool(self._asked.times)

    def _await_change(self, wakes: int) -> bool:
        """Wait until the code has changed; whether we were asked to end meanwhile."""
        events.publish(events.ChangeAwaited(self._plan.code))
        while not self._asked.times:
            if self._has_changed():
                return False
            self._pause(wakes, POLL_SECONDS)
        return True

    def _leave(self, child: Child, code: int) -> Left:
        until = clock.boot_seconds() + OVERDUE_SECONDS
        while self._recorders and clock.boot_seconds() < until and not self._asked.is_impatient:
            self._reap()
            self._standin.answer(ENDED)
            clock.sleep(0.01)
        left = child.ended.left if child.ended is not None else ()
        return Left(code, self._worker_id, self._runs, left, self._deaths, self._error)

    @contextlib.contextmanager
    def _heeding(self) -> Iterator[int]:
        """Signals are noted, and wake whoever waits on this; in a worker's process they are as they were before."""
        wakes, wake = os.pipe()
        for end in (wakes, wake):
            os.set_blocking(end, False)
        before_wake = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        stops = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._asked.note) for number in stops}
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _wake_only)
        try:
            yield wakes
        finally:
            signal.set_wakeup_fd(before_wake)
            if self._asked.is_impatient:  # it leaves as quickly as it can, and says how, however often it is asked
                self._before |= dict.fromkeys(stops, signal.SIG_IGN)
            self._heed_as_before()
            os.close(wakes)
            os.close(wake)

    def _heed_as_child(self) -> None:
        """A worker that only loads is ended by a signal at once, whatever this process would do."""
        for number in {signal.SIGTERM, signal.SIGHUP} & self._before.keys():
            self._before[number] = signal.SIG_DFL
        self._heed_as_before()

    def _heed_as_before(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def record_death(settings: Settings, worker_id: str, cause: str) -> None:
    """Write down how a worker ended."""
    with contextlib.closing(open_settings(settings)) as store:
        store.record_death(worker_id, cause)


def supervised(plan: Plan, listener: socket | None = None) -> Line | Left:
    """Work under a parent: in each worker's process its line to it, in the parent how it all ended.

    Whoever asks at the listener while no worker answers there is told so.
    """
    return Supervisor(plan, listener).run()


def _stillborn(code: str, cause: str) -> UsageError:
    return UsageError(
        f"The worker ended while it loaded {code}: {cause}.",
        safe="nothing was started.",
        hint=f"find what in {code} ends a process that only loads it",
    )


def _drink(wakes: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(wakes, _READ_BYTES):
            pass


def _wake_only(number: int, frame: object) -> None:
    """Not ignored, so that it wakes whoever waits."""
    del number, frame
