"""The campaign's side of the processes under test: starting one, waiting for its end, stopping and thawing it."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec
from msgspec import Struct

import perdure
from perdure import clock, typed
from perdure.errors import InternalError
from perdure.testing.crash.child import Birth, Told
from perdure.testing.crash.subject import environment

if TYPE_CHECKING:
    from perdure.testing.crash.subject import Subject
    from perdure.testing.crash.trap import Orders

KILLED: Final = -signal.SIGKILL
_HASH_SEEDS: Final = ("1", "2")
"""Fixed, so that a trial that failed fails again; one that the user has set stands."""

_numbers: Final = itertools.count(1)


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
    """Where the processes under test come from; lives as long as the block.

    Processes of one trial come in turn from two that have loaded perdure and the agent's libraries, and that put what
    they hash in different orders: as a program that is started again does. So do the first ones of two trials.
    """

    def __init__(self, subject: Subject, settings: dict[str, str]) -> None:
        self._subject = subject
        self._settings = settings
        self._births: Counter[str] = Counter()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            plain = self.environment({})
            made = [{"PYTHONHASHSEED": seed, **plain} for seed in _HASH_SEEDS]
            self._cradles = [opening.enter_context(Cradle(self._subject, environment)) for environment in made]
            for cradle in self._cradles:
                cradle.expect_ready()
            self._stack = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stop(self) -> None:
        """End every process at once, and start none any more: whoever waits for one hears that it was killed."""
        for cradle in self._cradles:
            cradle.stop()

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
        birth = Birth(
            folder=str(folder),
            environment=self.environment(settings),
            orders=orders,
            out=str(logs / f"{orders.life}.out"),
            err=str(logs / f"{orders.life}.err"),
            pardon=pardon,
        )
        self._births[orders.trial] += 1
        turn = self._births[orders.trial] + sum(orders.trial.encode())
        self._cradles[turn % len(self._cradles)].bear(life, birth)
        return life


class Cradle:
    """One process that forks others when it is asked to."""

    def __init__(self, subject: Subject, environment: dict[str, str]) -> None:
        self._lives: dict[int, Life] = {}
        self._lock = threading.Lock()
        self._is_stopped = False
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "perdure.testing.crash.child", msgspec.json.encode(subject).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the campaign, which ends them all
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError
        self._asking, self._answers = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._asking.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()

    def expect_ready(self) -> None:
        """Wait until it has loaded what can be loaded once, and hear what it tells from here on."""
        if not self._answers.readline():
            raise _gone()
        threading.Thread(target=self._listen, name="perdure-crash-nursery", daemon=True).start()

    def bear(self, life: Life, birth: Birth) -> None:
        """Have a process forked."""
        with self._lock:
            if self._is_stopped:
                raise KeyboardInterrupt
            number = next(_numbers)
            self._lives[number] = life
            try:
                self._asking.write(msgspec.json.encode(msgspec.structs.replace(birth, number=number)) + b"\n")
                self._asking.flush()
            except OSError as error:
                raise _gone() from error

    def stop(self) -> None:
        """End its processes, and start none any more."""
        with self._lock:
            self._is_stopped = True
            with contextlib.suppress(OSError):
                self._asking.close()

    def _listen(self) -> None:
        for line in self._answers:
            told = typed.read(line, Told)
            life = self._lives.get(told.number)
            if life is not None:
                life.hear(told)
                if told.status is not None:
                    self._lives.pop(told.number, None)
        with self._lock:
            left = list(self._lives.values())
        for life in left:  # the process that forked them is gone, and took them with it
            life.hear(Told(pid=life.pid, status=KILLED))


def _gone() -> InternalError:
    return InternalError(
        "The process that starts the processes under test has ended.",
        safe="nothing of yours was touched.",
        hint="this is a fault in perdure: please report it",
    )
