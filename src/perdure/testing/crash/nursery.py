"""The campaign's side of the processes under test: starting one, waiting for its end, stopping and thawing it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec
from msgspec import Struct

import perdure
from perdure import clock
from perdure.errors import InternalError, UsageError
from perdure.testing.crash.child import Birth, Told
from perdure.testing.crash.subject import environment

if TYPE_CHECKING:
    from perdure.testing.crash.subject import Subject
    from perdure.testing.crash.trap import Orders

KILLED: Final = -signal.SIGKILL
_LOAD_SECONDS: Final = 120.0


class Ended(Struct, frozen=True):
    """How a process ended: killed by a signal, the code is its negative number."""

    life: str
    pid: int
    code: int
    out: str
    err: str
    seconds: float
    is_late: bool = False
    """It did not end in time, and was killed for it."""

    @property
    def was_killed(self) -> bool:
        """Whether it was killed, and not for being late."""
        return self.code == KILLED and not self.is_late


class Life:
    """One process under test."""

    def __init__(self, name: str, out: Path, err: Path, timeout_seconds: float) -> None:
        self.name = name
        self.pid = 0
        self._out = out
        self._err = err
        self._timeout_seconds = timeout_seconds
        self._changed = threading.Condition()
        self._status: int | None = None
        self._is_stopped = False
        self._began = clock.elapsed_seconds()
        self._seconds = 0.0

    def wait(self, seconds: float | None = None) -> Ended:
        """Wait for its end; a process that takes too long is killed, and said to be late."""
        limit = self._timeout_seconds if seconds is None else seconds
        is_late = not self._until(lambda: self._status is not None, limit)
        if is_late:
            self.kill()
        return self._ended(is_late=is_late)

    def is_over(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, or does within so many seconds."""
        return self._until(lambda: self._status is not None, seconds)

    @property
    def is_overdue(self) -> bool:
        """Whether it has taken longer than a process may."""
        return clock.elapsed_seconds() - self._began > self._timeout_seconds

    def is_frozen(self, seconds: float | None = None) -> bool:
        """Wait until it has stopped at its point, or ended; whether it has stopped."""
        limit = self._timeout_seconds if seconds is None else seconds
        self._until(lambda: self._is_stopped or self._status is not None, limit)
        return self._is_stopped and self._status is None

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._is_stopped = False
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self._until(lambda: self._status is not None, self._timeout_seconds)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        if self.pid and self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def hear(self, told: Told) -> None:
        """What the nursery says of it."""
        with self._changed:
            self.pid = told.pid
            self._is_stopped = told.stopped
            if told.status is not None:
                self._status = told.status
                self._seconds = clock.elapsed_seconds() - self._began
            self._changed.notify_all()

    def _until(self, condition: object, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, max(0.0, seconds))  # type: ignore[arg-type]

    def _ended(self, *, is_late: bool) -> Ended:
        code = KILLED if self._status is None else self._status
        out, err = (path.read_text(errors="replace") if path.exists() else "" for path in (self._out, self._err))
        return Ended(self.name, self.pid, code, out, err, self._seconds, is_late)


class Nursery:
    """A process that has loaded the subject and forks one for each request; lives as long as the block."""

    def __init__(self, subject: Subject, settings: dict[str, str]) -> None:
        self._subject = subject
        self._settings = settings
        self._lives: dict[int, Life] = {}
        self._lock = threading.Lock()
        self._numbers = 0
        self._is_stopped = False

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "perdure.testing.crash.child", msgspec.json.encode(self._subject).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment({}),
            start_new_session=True,  # Ctrl-C is for the campaign, which ends them all
        )
        try:
            self._refuse_unusable()
        except BaseException:
            self.__exit__()
            raise
        threading.Thread(target=self._listen, name="perdure-crash-nursery", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def stop(self) -> None:
        """End every process at once, and start none any more: whoever waits for one hears that it was killed."""
        with self._lock:
            self._is_stopped = True
            if self._process.stdin is not None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()

    def environment(self, settings: dict[str, str]) -> dict[str, str]:
        """The environment of a process: it finds the very perdure that started the campaign."""
        found = environment({**self._settings, **settings})
        places = [str(Path(perdure.__file__).parents[1]), found.get("PYTHONPATH", "")]
        return {**found, "PYTHONPATH": os.pathsep.join(filter(None, places))}

    def start(
        self,
        folder: Path,
        orders: Orders,
        *,
        settings: dict[str, str],
        logs: Path,
        timeout_seconds: float,
        pardon: bool = False,
    ) -> Life:
        """Start a process in this folder."""
        life = Life(orders.life, logs / f"{orders.life}.out", logs / f"{orders.life}.err", timeout_seconds)
        with self._lock:
            self._numbers += 1
            self._lives[self._numbers] = life
            birth = Birth(
                number=self._numbers,
                folder=str(folder),
                environment=self.environment(settings),
                orders=orders,
                out=str(logs / f"{orders.life}.out"),
                err=str(logs / f"{orders.life}.err"),
                pardon=pardon,
            )
            self._write(msgspec.json.encode(birth) + b"\n")
        return life

    def _write(self, line: bytes) -> None:
        if self._process.stdin is None:
            raise AssertionError
        if self._is_stopped:
            raise KeyboardInterrupt
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError as error:
            raise InternalError(
                "The process that starts the processes under test has ended.",
                safe="nothing of yours was touched.",
                hint="this is a fault in perdure: please report it",
            ) from error

    def _refuse_unusable(self) -> None:
        if self._process.stdout is None:
            raise AssertionError
        line = self._process.stdout.readline()
        told = msgspec.json.decode(line, type=Told) if line else Told(unusable="it ended while it was being loaded")
        if told.hint:
            raise UsageError(told.unusable, safe="nothing was started.", hint=told.hint)
        if told.unusable:
            last = told.unusable.strip().splitlines()[-1]
            raise UsageError(
                f"{self._subject.shown or self._subject.app} cannot be loaded in a process of its own: {last}",
                safe="nothing was started.",
                hint="mend it, then try again; modules are looked for where you are, and beside the file",
            )

    def _listen(self) -> None:
        if self._process.stdout is None:
            raise AssertionError
        for line in self._process.stdout:
            told = msgspec.json.decode(line, type=Told)
            life = self._lives.get(told.number)
            if life is not None:
                life.hear(told)
                if told.status is not None:
                    self._lives.pop(told.number, None)
        with self._lock:
            left = list(self._lives.values())
        for life in left:  # the nursery is gone, and took them with it
            life.hear(Told(pid=life.pid, status=KILLED))
