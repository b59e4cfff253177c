"""The line between a worker and the process that started it: what each tells the other, and that both are there.

A worker whose parent is gone ends at once, as if it had been killed itself: others go on with its runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from perdure import typed
from perdure.asked import Bell

if TYPE_CHECKING:
    from collections.abc import Callable

WATCH_SECONDS: Final = 0.5
"""How often a worker looks which files it has loaded, where somebody wants to know."""

_SET_DEATH_SIGNAL: Final = 1
_DRAIN: Final = b"drain"


class Ready(Struct, frozen=True, tag=True):
    """The worker has loaded its code, and looks for runs under this id."""

    worker_id: str


class Loaded(Struct, frozen=True, tag=True):
    """The worker has loaded this file of the user's, or tried to."""

    path: str


class Declared(Struct, frozen=True, tag=True):
    """The store knows what the worker's code says of queues and schedules; which is this, in one word."""

    declaration: str


class Took(Struct, frozen=True, tag=True):
    """The worker has taken a run."""


class Finished(Struct, frozen=True, tag=True):
    """The worker has brought a run to its end, or to where it waits."""


class Refused(Struct, frozen=True, tag=True):
    """The worker cannot begin, and has said why."""


class Ended(Struct, frozen=True, tag=True):
    """The worker ends because it was asked to; the ids of runs that were still inside a step."""

    left: tuple[str, ...] = ()


Said = Ready | Loaded | Declared | Took | Finished | Refused | Ended

_decode: Final[Callable[[bytes | str], Said]] = typed.decoder(Said)  # type: ignore[arg-type]  # a union is no type


class Line:
    """The worker's end of the line."""

    def __init__(self, *, hears: int, tells: int, parent: int, declared: str = "") -> None:
        self.declared = declared
        """What the worker before this one had declared."""
        self.asked = Bell()
        """Rings once the parent wants the worker to drain."""
        self.grace_seconds: float | None = None
        """How long its steps may go on then; None where that is left to the worker."""
        self._hears = hears
        self._tells = tells
        self._known: set[str] = set()
        os.set_blocking(tells, False)
        _die_with_parent(parent)

    def listen(self, files: Callable[[], list[str]] | None = None) -> None:
        """Hear what the parent says, and tell it of files that were loaded meanwhile."""
        threading.Thread(target=self._listen, args=(files,), name="perdure-line", daemon=True).start()

    def say(self, said: Said) -> None:
        """Tell the parent something; it is never waited for."""
        text = msgspec.json.encode(said) + b"\n"
        if len(text) <= select.PIPE_BUF:  # it arrives whole or not at all
            with contextlib.suppress(OSError):
                os.write(self._tells, text)

    def say_loaded(self, paths: list[str]) -> None:
        """Tell the parent of files, each once."""
        for path in paths:
            if path not in self._known:
                self._known.add(path)
                self.say(Loaded(path))

    def _listen(self, files: Callable[[], list[str]] | None) -> None:
        while True:
            heard, _, _ = select.select([self._hears], [], [], WATCH_SECONDS if files else None)
            if files is not None:
                self.say_loaded(files())
            if heard and not self._obey(os.read(self._hears, select.PIPE_BUF)):
                os.kill(os.getpid(), signal.SIGKILL)

    def _obey(self, heard: bytes) -> bool:
        """Do what the parent says; whether there still is one."""
        for word in heard.splitlines():
            what, _, seconds = word.partition(b" ")
            if what == _DRAIN:
                self.grace_seconds = float(seconds)
                self.asked.ring()
        return bool(heard)


def read_said(text: bytes) -> Said | None:
    """What a worker said; None where that is nothing that a worker says."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None


def drain_words(grace_seconds: float) -> bytes:
    """What a parent says to a worker that is to drain."""
    return _DRAIN + f" {grace_seconds}\n".encode()


def _die_with_parent(parent: int) -> None:
    """Ask the system to kill this process when its parent dies; elsewhere, and while the GIL is free, the line does."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes  # slow to load, and only needed here

            ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
