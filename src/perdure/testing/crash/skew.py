"""A wall clock that can be set from outside: what a child reads as the time is ahead or behind by what a file says.

The file holds two numbers: the offset in seconds, and the one that a clock last went by. The boot clock goes on as it
is, like on a real machine whose clock somebody sets. What Python reads through `datetime.now()` comes straight from the
system and does not follow.
"""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path
from typing import Any, Final

CLOCK: Final = "CRASH_CLOCK"
"""The variable that names the file to a child."""

_OFFSET: Final = struct.Struct("<d")
_PAIR: Final = struct.Struct("<dd")
_NANOSECONDS: Final = 1_000_000_000


def set_offset(path: Path, seconds: float) -> None:
    """Let every clock that follows this file be so many seconds ahead; behind, where that is negative."""
    if not path.exists():
        path.write_bytes(_PAIR.pack(seconds, 0.0))
        return
    with path.open("r+b") as file:  # in place: whoever follows has mapped these very bytes
        file.write(_OFFSET.pack(seconds))


def set_to(path: Path) -> float:
    """By how much every clock that follows this file is ahead."""
    seconds: float = _PAIR.unpack(path.read_bytes())[0]
    return seconds


def seen_offset(path: Path) -> float:
    """The offset that somebody's clock last went by."""
    seconds: float = _PAIR.unpack(path.read_bytes())[1]
    return seconds


def follow(path: Path) -> None:
    """Let the wall clock of this process follow the file from now on."""
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), _PAIR.size)
    time: Any = sys.modules["time"]  # the one thing that may be replaced here and read nowhere
    real_seconds, real_nanoseconds = time.time, time.time_ns

    def offset() -> float:
        mapped[_OFFSET.size :] = mapped[: _OFFSET.size]
        seconds: float = _OFFSET.unpack_from(mapped)[0]
        return seconds

    time.time = lambda: real_seconds() + offset()
    time.time_ns = lambda: real_nanoseconds() + int(offset() * _NANOSECONDS)
