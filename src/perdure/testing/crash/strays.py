"""Processes that bodies start in a session of their own and leave behind: found when their trial is over, and ended.

A real crash leaves them alive as well, so they live as long as the trial does. They are known by the address of the
outside in their environment, or by the folder that they work in. Only Linux tells either of another process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.telemetry.text import legible
from perdure.testing.crash.oracle import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Iterator

STRAYS: Final = "processes left behind"
"""How they are counted."""

_PROCESSES: Final = Path("/proc")
_SHOWN: Final = 80


def end_strays(outside: str, folder: Path) -> list[str]:
    """End every process of a trial that is over; what each of them was started as."""
    ended = []
    for process in _strays(outside, folder):
        words = _command(process)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(process.name), signal.SIGKILL)
            ended.append(legible(words, _SHOWN))
    return ended


def _strays(outside: str, folder: Path) -> Iterator[Path]:
    marker = f"{OUTSIDE}={outside}".encode()
    for process in _PROCESSES.iterdir() if _PROCESSES.is_dir() else ():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                if _is_of(process, marker, folder):
                    yield process


def _is_of(process: Path, marker: bytes, folder: Path) -> bool:
    """Whether it belongs to the trial, and was not killed with it just now."""
    is_here = b"\0" + marker in b"\0" + (process / "environ").read_bytes()
    return (is_here or (process / "cwd").readlink().is_relative_to(folder)) and not _is_dying(process)


def _is_dying(process: Path) -> bool:
    """Whether SIGKILL was sent to it, and it is only not gone yet; or whether it is gone, and nobody asked how."""
    told = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    pending = int(told["ShdPnd"], 16) | int(told["SigPnd"], 16)
    return bool(pending >> (signal.SIGKILL - 1) & 1) or told["State"].startswith(("Z", "X"))


def _command(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return "a process"
