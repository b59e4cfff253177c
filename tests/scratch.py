"""Where the tests keep their files: in memory where the machine has room for them, else where temporary files are.

What a killed process has written is kept by the kernel, on whatever the files are: waiting for a disk shows nothing
more, and was half of what the tests did. Whoever sets TMPDIR has them there, as the long tests do, which stay on
the disk; the modes that cut the power have a file system of their own.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there for each test run
_PREFIX: Final = "perdure-tests-"
_LOCK: Final = "alive"
_LEAST_BYTES: Final = 4 << 30
_KEPT_SECONDS: Final = 3600.0
_kept: Final[set[str]] = set()


def begin() -> None:
    """Make a folder in memory that is the place of temporary files from here on, also of every process started."""
    if "TMPDIR" in os.environ or not _has_room():
        return
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_MEMORY))
    folder.chmod(0o755)  # the PostgreSQL of the tests is another user
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    atexit.register(_end, folder, descriptor)  # after all that is registered later, such as the end of a server
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None


def keep() -> None:
    """Let it stay when this process ends, for whoever looks at what failed; a test run an hour later removes it."""
    folder = os.environ.get("TMPDIR", "")
    _kept.add(folder)
    if (Path(folder) / _LOCK).exists():
        (Path(folder) / _LOCK).touch()


def _end(folder: Path, descriptor: int) -> None:
    os.close(descriptor)
    if str(folder) not in _kept:
        shutil.rmtree(folder, ignore_errors=True)


def _has_room() -> bool:
    """Whether files in memory can be made, executed, and many of them."""
    if not os.access(_MEMORY, os.W_OK):
        return False
    found = os.statvfs(_MEMORY)
    return found.f_bavail * found.f_frsize >= _LEAST_BYTES and not found.f_flag & os.ST_NOEXEC


def _sweep() -> None:
    """Remove what test runs left in memory that are over, and were for a while."""
    for folder in _MEMORY.glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - os.fstat(descriptor).st_mtime > _KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # it is still going on
        finally:
            os.close(descriptor)
