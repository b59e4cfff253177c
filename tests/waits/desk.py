"""The desk of the person who is asked: what lies there, what was written, and kills at moments of the store."""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import re
import signal
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any, Final, Self

import perdure
from perdure.bodies import Opened, Question
from perdure.cli import main
from perdure.engine.session import close_sessions, session
from perdure.events import Observable
from perdure.records import Kind, Mail
from tests.crash import killer
from tests.engine.journals import bodies_of
from tests.engine.world import world

PATIENCE_SECONDS: Final = 60.0
UNWRITTEN: Final = ("before", "inside")
"""Sides of a write after which, if the process dies there, nothing of it is in the store."""

WRITTEN: Final = ("unmarked", "marked", "after")
"""Sides of a write after which it is in the store."""


def killed(at: str, act: Callable[[], object]) -> None:
    """Do something in a process of its own, which is killed at this moment of its work on the store."""

    def armed() -> None:
        os.environ[killer.AT] = at
        killer.arm()
        act()

    world.killed_at("", armed)


def opened(run_id: str = "r") -> list[Opened]:
    """Everything the run ever waited for, oldest first."""
    return bodies_of(run_id, Kind.WAIT)


def questions(run_id: str = "r") -> list[Question]:
    """Every question the run ever asked."""
    return [wait.question for wait in opened(run_id) if wait.question is not None]


def mails(run_id: str = "r") -> list[Mail]:
    """The run's mailbox."""
    return session().store.read_mail(run_id)


def letters(run_id: str = "r") -> list[tuple[str, bool]]:
    """Kind of each mail, and whether it was taken."""
    return [(mail.kind, mail.taken > 0) for mail in mails(run_id)]


def threads_end() -> None:
    """Every thread that executed a run has ended, or ends now: none stays for a run that waits."""
    for thread in threading.enumerate():
        if thread.name == "perdure-run":
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


def shown(value: object) -> str:
    """A parameter in the name of a test: the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def inbox() -> list[str]:
    """The questions that `perdure inbox` shows."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert main(["inbox", "--json", "--store", session().store.location]) == 0, shown.getvalue()
    return [question["text"] for question in json.loads(shown.getvalue())["questions"]]


class Bell:
    """Rings for events of these kinds, so that a test waits for what happens and not for time to pass."""

    def __init__(self, *kinds: type[Observable]) -> None:
        self._heard: queue.Queue[Observable] = queue.Queue()
        self._end = perdure.subscribe(self._heard.put, *kinds)

    def wait(self) -> Any:
        """The next event."""
        return self._heard.get(timeout=PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


def frozen(at: str, act: Callable[[], object]) -> int:
    """Do something in a process of its own, which stands still at this moment of its work on the store; its pid."""
    close_sessions()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # nothing of the runner's threads is used in the child
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.environ[killer.FREEZE_AT] = at
            killer.arm()
            act()
            code = 0
        except BaseException:  # noqa: BLE001 - the child must not return into the test runner
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                close_sessions()
            os._exit(code)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]), f"the process never reached {at!r}"
    return pid


def thawed(pid: int) -> int:
    """Let a frozen process go on to its end; its exit code, 1 where it raised."""
    os.kill(pid, signal.SIGCONT)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
