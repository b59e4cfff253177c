"""The only place that reads time, randomness or the identity of this boot.

Wall time is what people read; elapsed time is measured on the boot clock, which no clock jump can move. Where machines
share a store, its time counts for all of them: whoever's own clock shows another keeps that instead.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
TOLERATED_SECONDS: Final = 0.5
"""A clock that is wrong by less is as good as any."""

_kept: list[float] = []
"""Where this machine's clock is wrong: when it was started, by the time of the store."""


def wall_seconds() -> float:
    """Seconds since 1970, UTC; by the time of a store that was heeded, where this machine's clock shows another."""
    return _kept[0] + boot_seconds() if _kept else time.time()


def heed_time(wall: float, *, boot: float, doubt: float) -> None:
    """It was this time for everybody who shares the store, give or take the doubt, at that moment of the boot clock."""
    shown = time.time() - (boot_seconds() - boot)
    if abs(wall - shown) <= max(TOLERATED_SECONDS, doubt):
        _kept.clear()
    elif not _kept or abs(wall - boot - _kept[0]) > doubt:
        _kept[:] = [wall - boot]


def skew_seconds() -> float:
    """By how much this machine's clock is ahead of the time that is kept instead; 0 where it is as good."""
    return time.time() - wall_seconds() if _kept else 0.0


@functools.cache
def process_id() -> int:
    """The id of this process. It is wanted at every step, so the kernel is asked once, and anew in a forked child."""
    os.register_at_fork(before=process_id.cache_clear, after_in_child=process_id.cache_clear)
    return os.getpid()


def boot_seconds() -> float:
    """Seconds since this machine started, suspended time included; never jumps."""
    boottime = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(boottime)


def elapsed_seconds() -> float:
    """A stopwatch reading, for durations within this process."""
    return time.perf_counter()


def seconds_since(reading: float) -> float:
    """How long ago a stopwatch showed this, in whole microseconds: nobody wants to read more."""
    return int((elapsed_seconds() - reading) * 1_000_000) / 1_000_000


def sleep(seconds: float) -> None:
    """Block this thread."""
    time.sleep(max(0.0, seconds))


def pause(seconds: float) -> None:
    """Let time pass for a run that waits in this thread."""
    sleep(seconds)


async def pause_async(seconds: float) -> None:
    """The same on an event loop, which goes on meanwhile."""
    import asyncio  # which whoever calls this has loaded

    await asyncio.sleep(max(0.0, seconds))


def poll(seconds: float, *, until: Callable[[], float] | None = None, woken: threading.Event | None = None) -> None:
    """Wait so long before looking again at what others do, or until woken.

    `until` tells when what is waited for comes by itself, 0 for never: a clock that skips time goes there.
    """
    del until
    if woken is None:
        sleep(seconds)
    else:
        woken.wait(seconds)


async def poll_async(seconds: float, *, until: Callable[[], float] | None = None) -> None:
    """The same on an event loop."""
    del until
    await pause_async(seconds)


def instant(seconds: float) -> datetime:
    """The UTC instant of a stored time."""
    return datetime.fromtimestamp(seconds, UTC)


def new_uuid() -> UUID:
    """A fresh random UUID."""
    return uuid4()


def new_fraction() -> float:
    """A fresh random number in [0, 1)."""
    return (int.from_bytes(os.urandom(7)) >> 3) / (1 << 53)


def new_token(length: int) -> str:
    """A fresh random text of lower-case letters and digits without look-alikes."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return "".join(pick(alphabet) for _ in range(length))


def pick(choices: Sequence[str]) -> str:
    """One of these."""
    return choices[int(new_fraction() * len(choices))]


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
