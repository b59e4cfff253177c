"""The only place that reads time, randomness or the identity of this boot.

Wall time is what people read; elapsed time is measured on the boot clock, which no clock jump can move.
"""

from __future__ import annotations

import functools
import os
import random
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

if TYPE_CHECKING:
    from collections.abc import Sequence

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_random = random.SystemRandom()


def wall_seconds() -> float:
    """Seconds since 1970, UTC."""
    return time.time()


def boot_seconds() -> float:
    """Seconds since this machine started, suspended time included; never jumps."""
    boottime = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(boottime)


def elapsed_seconds() -> float:
    """A stopwatch reading, for durations within this process."""
    return time.perf_counter()


def sleep(seconds: float) -> None:
    """Block this thread."""
    time.sleep(max(0.0, seconds))


def instant(seconds: float) -> datetime:
    """The UTC instant of a stored time."""
    return datetime.fromtimestamp(seconds, UTC)


def new_uuid() -> UUID:
    """A fresh random UUID."""
    return uuid4()


def new_fraction() -> float:
    """A fresh random number in [0, 1)."""
    return _random.random()


def new_token(length: int) -> str:
    """A fresh random text of lower-case letters and digits without look-alikes."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return "".join(_random.choice(alphabet) for _ in range(length))


def pick(choices: Sequence[str]) -> str:
    """One of these."""
    return _random.choice(choices)


@functools.cache
def boot_id() -> str:
    """The identity of this boot of this kernel; empty where the system does not tell."""
    try:
        return _BOOT_ID_FILE.read_text().strip()
    except OSError:
        return ""


@functools.cache
def host_name() -> str:
    """The name of this host."""
    return socket.gethostname() or os.uname().nodename
