"""What campaigns that were killed themselves left behind: the next one in the same place removes it.

A campaign holds a lock on a file in its folder for as long as it lives, and removes the file when it ends. A folder
with such a file that nobody holds is that of a dead one; folders that were kept for a fault have none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.store import shown
from perdure.testing.crash.place import SCHEMA_FILE, drop_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS: Final = "perdure-crash-"
"""How the folders of campaigns begin."""

_LOCK: Final = "alive"
_MOUNTS: Final = Path("/proc/self/mounts")


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Say of a campaign's folder that it is in use, for as long as this process lives in the block."""
    path = folder / _LOCK
    descriptor = os.open(folder / f"{_LOCK}.new", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        (folder / f"{_LOCK}.new").rename(path)  # held from the moment that anybody can see it
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def sweep(parent: Path, *, server: str) -> None:
    """Remove the folders, mounts and schemas of dead campaigns; those on another server stay until it is named."""
    for folder in parent.glob(f"{FOLDERS}*"):
        with contextlib.suppress(OSError):
            if _is_dead(folder):
                _remove(folder, server)


def _is_dead(folder: Path) -> bool:
    """Whether it is ours, was not kept on purpose, and nobody works in it."""
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid() or not (folder / _LOCK).exists():
        return False
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _remove(folder: Path, server: str) -> None:
    for trial in [path for path in folder.iterdir() if path.is_dir()]:
        named = trial / SCHEMA_FILE
        if named.exists():
            where, _, schema = named.read_text().partition("\n")
            if not server or where != shown(server):
                return
            drop_schema(server, schema.strip())
            named.unlink()
    for place in _mounted(folder):
        subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)  # noqa: S603, S607
    if not _mounted(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _mounted(folder: Path) -> list[str]:
    """What is mounted below a folder."""
    if not _MOUNTS.exists():
        return []
    places = [line.split()[1] for line in _MOUNTS.read_text().splitlines()]
    return [place for place in places if Path(place).is_relative_to(folder.resolve())]
