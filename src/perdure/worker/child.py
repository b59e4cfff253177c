"""A worker's process as its parent knows it: what it has said, and by when it should have ended."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final

from perdure import clock
from perdure.worker.line import Declared, Ended, Finished, Loaded, Ready, Refused, Said, Took, drain_words, read_said

if TYPE_CHECKING:
    from collections.abc import Iterator

OVERDUE_SECONDS: Final = 5.0
"""A worker that has not ended so long after its grace is killed."""

_READ_BYTES: Final = 65536


class Child:
    """A worker's process, and what it has said."""

    def __init__(self, pid: int, *, hears: int, tells: int) -> None:
        self.pid = pid
        self.hears = hears
        self.tells = tells
        self.began_at = clock.boot_seconds()
        self.began_wall = clock.wall_seconds()
        self.worker_id = ""
        self.has_refused = False
        self.declared = ""
        self.ended: Ended | None = None
        self.runs = 0
        self.has_finished = False
        self.kill_at = 0.0
        self.killed_for = ""
        self.is_silent = False
        self._unread = b""

    @property
    def is_ready(self) -> bool:
        """Whether it has begun to work."""
        return bool(self.worker_id)

    @property
    def serves(self) -> bool:
        """Whether it answers for itself to whoever asks for its health."""
        return self.is_ready and self.ended is None

    def ask_to_drain(self, grace_seconds: float) -> None:
        """Let it finish its steps; one that takes too long over it will be killed."""
        with contextlib.suppress(OSError):
            os.write(self.tells, drain_words(grace_seconds))
        self.expect_end(grace_seconds)

    def expect_end(self, seconds: float) -> None:
        """It should have ended by then."""
        self.kill_at = clock.boot_seconds() + seconds + OVERDUE_SECONDS

    def kill(self, why: str) -> None:
        """End it at once."""
        self.killed_for = why
        os.kill(self.pid, signal.SIGKILL)

    def heard(self) -> Iterator[Loaded]:
        """Take in what it said meanwhile; the files among it."""
        with contextlib.suppress(BlockingIOError):
            while not self.is_silent:
                text = os.read(self.hears, _READ_BYTES)
                self.is_silent = not text
                *lines, self._unread = (self._unread + text).split(b"\n")
                for said in map(read_said, lines):
                    if isinstance(said, Loaded):
                        yield said
                    else:
                        self._take_in(said)

    def _take_in(self, said: Said | None) -> None:
        match said:
            case Ready(worker_id):
                self.worker_id = worker_id
            case Declared(declaration):
                self.declared = declaration
            case Refused():
                self.has_refused = True
            case Ended():
                self.ended = said
                self.kill_at = self.kill_at or clock.boot_seconds() + OVERDUE_SECONDS
            case Took():
                self.runs += 1
            case Finished():
                self.has_finished = True
            case _:
                pass

    def close(self) -> None:
        """Be done with it."""
        os.close(self.hears)
        os.close(self.tells)
