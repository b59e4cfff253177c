"""How a process ended, in words; and whether the system took it for want of memory, where the system tells."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections import deque
from pathlib import Path
from typing import Final

from perdure import clock

LOOKBACK_SECONDS: Final = 10.0
"""A kill for want of memory is blamed for a death only if it was counted so shortly before."""

SIGNALLED: Final = 128
"""What a shell adds to the number of a signal to tell of it by an exit code."""

_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_GROUPS: Final = Path("/sys/fs/cgroup")
_KERNEL_LOG: Final = "/dev/kmsg"
_KERNEL_RECORD_BYTES: Final = 8192
_FIRST_NAMESPACE: Final = 0xEFFFFFFC
"""The inode of the name space in which process numbers are those that the kernel writes to its log."""

_KILLS: Final = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def exit_code_of(status: int) -> int:
    """The exit code that tells of this wait status: the process's own, or its signal as a shell tells it."""
    code = os.waitstatus_to_exitcode(status)
    return SIGNALLED - code if code < 0 else code


def cause_of(status: int, *, starved: bool = False) -> str:
    """A wait status in words; `starved` where the system is known to have taken the process for want of memory."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with code {code}"
    return f"killed by signal {-code} ({'out of memory' if starved else signal_name(-code)})"


def signal_name(number: int) -> str:
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "which has no name"


class Famine:
    """Watches whether the system kills for want of memory: its log names the victim, a counter only that there was one.

    Where the log can be read it decides. Else the counter of our own control group does, if it grew just now.
    """

    def __init__(self) -> None:
        self._counter = counter_file()
        self._log = _opened_log()
        self._counted: deque[tuple[float, int]] = deque()
        self.look()

    def look(self) -> None:
        """Note what the counter says; to be called every second or so."""
        now = clock.boot_seconds()
        self._counted.append((now, kills_in(self._counter)))
        while len(self._counted) > 1 and self._counted[1][0] < now - LOOKBACK_SECONDS:
            self._counted.popleft()

    def took(self, pid: int, status: int) -> bool:
        """Whether this process, which ended like that, is known to have been taken for want of memory."""
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            return False
        named = self._names(pid)
        self.look()
        has_grown = self._counted[-1][1] > self._counted[0][1]
        return has_grown if named is None else named

    def _names(self, pid: int) -> bool | None:
        """Whether the log says since we last read it that this process was killed; None where it cannot tell."""
        if self._log is None:
            return None
        victim = f"Killed process {pid} ".encode()
        found, is_whole = False, True
        while True:
            try:
                found |= victim in os.read(self._log, _KERNEL_RECORD_BYTES)
            except BrokenPipeError:
                is_whole = False  # records that we had not read were overwritten
            except OSError:
                return found or (False if is_whole else None)

    def close(self) -> None:
        """Look no more."""
        if self._log is not None:
            os.close(self._log)
            self._log = None


def counter_file(own_groups: Path = _OWN_GROUPS, groups: Path = _GROUPS) -> Path | None:
    """The file in which the system counts kills for want of memory in the control group of this process."""
    for line in _text_of(own_groups).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            name, mounts = "memory.events", [groups, groups / "unified"]
        elif "memory" in controllers.split(","):
            name, mounts = "memory.oom_control", [groups / "memory"]
        else:
            continue
        # Inside a container the path may be the one that the host knows, and what is mounted be the group itself.
        for place in (mount / inside / name for mount in mounts for inside in (path.lstrip("/"), "")):
            if _KILLS.search(_text_of(place)):
                return place
    return None


def kills_in(counter: Path | None) -> int:
    """How many there were; 0 where nobody counts."""
    found = _KILLS.search(_text_of(counter)) if counter is not None else None
    return int(found[1]) if found else 0


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _opened_log() -> int | None:
    """The kernel's log from here on; None where it cannot be read, or would name processes by other numbers."""
    try:
        if os.stat("/proc/self/ns/pid").st_ino != _FIRST_NAMESPACE:  # noqa: PTH116 - a link that leads nowhere
            return None
        opened = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.lseek(opened, 0, os.SEEK_END)
        with contextlib.suppress(BlockingIOError):
            os.read(opened, _KERNEL_RECORD_BYTES)
    except OSError:
        os.close(opened)
        return None
    return opened
