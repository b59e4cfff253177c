"""What the agents under test act on: a log in a file, which outlives a killed process, and the moments to die at."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from perdure.engine.session import close_sessions


class World:
    """The outside of every run of one test."""

    def __init__(self) -> None:
        self._log = Path(os.devnull)
        self._dies_at = ""
        self._passes = 0

    def begin(self, folder: Path) -> None:
        """A new world, in which nothing has happened."""
        self._log = folder / "world.log"
        self._log.touch()

    def note(self, line: str) -> None:
        """Something happened outside."""
        with self._log.open("a") as log:
            log.write(line + "\n")

    @property
    def lines(self) -> list[str]:
        """What happened, in order."""
        return self._log.read_text().splitlines()

    def count(self, line: str) -> int:
        """How often this happened."""
        return self.lines.count(line)

    def moment(self, name: str) -> None:
        """A point at which the process may be killed."""
        if name == self._dies_at:
            if self._passes == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._passes -= 1

    def killed_at(self, moment: str, act: Callable[[], object], *, passes: int = 0) -> None:
        """Do something in a process of its own, which is killed when it has passed the moment so often."""
        status = self._forked(act, moment, passes)
        assert os.WIFSIGNALED(status), f"the process ended with {status} and never reached {moment!r}"
        assert os.WTERMSIG(status) == signal.SIGKILL

    def elsewhere(self, act: Callable[[], object]) -> int:
        """Do something in a process of its own, to its end; its exit code, 1 where it raised."""
        status = self._forked(act, "", 0)
        assert os.WIFEXITED(status), f"the process was killed by signal {status}"
        return os.WEXITSTATUS(status)

    def _forked(self, act: Callable[[], object], moment: str, passes: int) -> int:
        close_sessions()
        with warnings.catch_warnings():
            # Nothing of the threads a test runner keeps is used in the child.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            self._dies_at, self._passes = moment, passes
            code = 1
            try:
                act()
                code = 0
            except BaseException:  # noqa: BLE001 - the child must not return into the test runner
                traceback.print_exc()
            finally:
                with contextlib.suppress(BaseException):
                    close_sessions()
                os._exit(code)
        return os.waitpid(pid, 0)[1]


world = World()
