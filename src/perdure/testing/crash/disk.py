"""A file system in a file, whose power can be cut under whoever writes to it: what was only in memory is gone then.

It needs root, a loop device and mkfs.ext4. The file system is shut down without its journal being flushed, as after a
real loss of power, and mounted again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

from perdure import clock
from perdure.errors import PerdureError, UsageError

IMAGE_MEGABYTES: Final = 32
_FS_IOC_SHUTDOWN: Final = 0x8004587D
_WITHOUT_FLUSHING: Final = 2
_BUSY_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
_TOOLS: Final = ("mkfs.ext4", "mount", "umount")


def refuse_without_rights() -> None:
    """Say why the power of a file system cannot be cut here, if it cannot."""
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=_search_path()) is None]
    if os.uname().sysname != "Linux":
        raise UsageError(
            "--power cuts the power of a Linux file system; this is another system.",
            safe="nothing was started.",
            hint="leave --power out, or run it in a Linux machine",
        )
    if os.geteuid() != 0:
        raise UsageError(
            "--power mounts a file system of its own and shuts it down, which needs root.",
            safe="nothing was started.",
            hint="start the same command as root, in a machine of its own",
        )
    if missing:
        raise UsageError(
            f"--power needs {', '.join(missing)}, which cannot be found.",
            safe="nothing was started.",
            hint="install e2fsprogs and mount",
        )


class Disk:
    """A file system of a trial's own, below a folder."""

    def __init__(self, folder: Path) -> None:
        self._image = folder / "disk.img"
        self.place = folder / "disk"
        self._is_mounted = False

    def make(self) -> None:
        """Format and mount it."""
        self.place.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(IMAGE_MEGABYTES * 1024 * 1024)
        _call("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()

    def lose_power(self) -> None:
        """Cut the power now: nothing that is not on the device yet will ever be."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _FS_IOC_SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING))
        except OSError as error:
            raise _refused("the file system cannot be shut down", error.strerror or str(error)) from error
        finally:
            os.close(descriptor)

    @property
    def has_power(self) -> bool:
        """Whether anything can be written to it."""
        try:
            self.place.joinpath("probe").touch()
        except OSError:
            return False
        return True

    def start_again(self) -> None:
        """Mount what the device has; nobody may be left who has files of it open."""
        self._unmount()
        self._mount()

    def remove(self) -> None:
        """Leave nothing behind, whoever still has files open."""
        if self._is_mounted:
            with contextlib.suppress(PerdureError):
                _call("umount", "--lazy", str(self.place))
            self._is_mounted = False
        with contextlib.suppress(OSError):
            self._image.unlink()

    def _mount(self) -> None:
        _call("mount", "-o", "loop", str(self._image), str(self.place))
        self._is_mounted = True

    def _unmount(self) -> None:
        """A process that was killed just now may need a moment until its files are closed."""
        until = clock.elapsed_seconds() + _BUSY_SECONDS
        while True:
            try:
                _call("umount", str(self.place))
            except PerdureError:
                if clock.elapsed_seconds() > until:
                    raise
                clock.sleep(_POLL_SECONDS)
            else:
                self._is_mounted = False
                return


def _call(tool: str, *arguments: str) -> None:
    path = shutil.which(tool, path=_search_path()) or tool
    try:
        ended = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        raise _refused(
            f"{tool} cannot be started", error.strerror or errno.errorcode.get(error.errno or 0, "")
        ) from error
    if ended.returncode:
        raise _refused(f"{tool} failed", ended.stderr.strip() or f"exit code {ended.returncode}")


def _refused(what: str, why: str) -> UsageError:
    return UsageError(
        f"--power cannot work here: {what} ({why}).",
        safe="the store of your project was not touched.",
        hint="it needs a Linux machine with loop devices, such as a virtual machine; containers often have none",
    )


def _search_path() -> str:
    """Where the tools of root are, whatever the shell of the user says."""
    return os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"))
