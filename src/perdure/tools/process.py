"""Starting a command so that it can be bounded, killed with all it started, and noticed when its parent is dead.

A command is given, open, a file that carries a lock. The lock belongs to whoever has the file open: the command, what
it starts, and nobody else once the parent has closed it. So as long as anything of a dead agent's command lives, the
lock is held, and no process id can be mistaken for another's.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from perdure import clock
from perdure.errors import UsageError
from perdure.tools.disk import lock_within, opened, try_lock

_POLL_SECONDS: Final = 0.05
_DRAIN_SECONDS: Final = 1.0
"""How long to go on reading after the command ended: something it left behind may hold its output open for ever."""

_CHUNK_BYTES: Final = 65536


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended: its exit code, or the negative number of the signal that killed it."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool


class Excerpt:
    """The beginning and the end of a stream of any length."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_bytes = limit_bytes - limit_bytes // 2
        self._tail_bytes = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._omitted = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next piece in."""
        room = self._head_bytes - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        excess = len(self._tail) - self._tail_bytes
        if excess > 0:
            self._omitted += excess
            del self._tail[:excess]

    def text(self) -> str:
        """What was kept, and how much is missing in its middle."""
        gap = f"\n[… {self._omitted} bytes left out …]\n".encode() if self._omitted else b""
        return (bytes(self._head) + gap + bytes(self._tail)).decode(errors="replace")


def run_bounded(
    arguments: Sequence[str],
    *,
    key: str,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    given: bytes = b"",
    max_bytes: int,
) -> Outcome:
    """Run a command to its end or to its timeout; `OSError` proves that it never started."""
    with _lifeline(key) as lifeline:
        process = subprocess.Popen(  # noqa: S603 - running what it is told to is what this is for; there is no shell
            arguments,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            pass_fds=(lifeline,),
        )
    excerpts = (Excerpt(max_bytes), Excerpt(max_bytes))
    try:
        timed_out = _pump(process, excerpts, given, timeout)
    except BaseException:
        kill_group(process.pid)
        process.wait()
        raise
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
    living(key, seconds=0)
    return Outcome(process.wait(), excerpts[0].text(), excerpts[1].text(), timed_out)


def living(key: str, *, seconds: float) -> str:
    """How to see what still lives of an earlier command with this key, after so long a wait; empty for nothing."""
    path = _lifeline_path(key)
    try:
        with opened(path, os.O_RDWR) as descriptor:
            if lock_within(descriptor, seconds):
                path.unlink()
                return ""
            return f"to see it: fuser -v {path}"
    except FileNotFoundError:
        return ""


def kill_group(pid: int) -> None:
    """End a command and everything it started that did not leave its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _pump(
    process: subprocess.Popen[bytes], excerpts: tuple[Excerpt, Excerpt], given: bytes, timeout: float | None
) -> bool:
    """Feed and read the command until it has ended; whether it had to be killed."""
    deadline = None if timeout is None else clock.elapsed_seconds() + timeout
    timed_out, drained_at = False, None
    with selectors.DefaultSelector() as selector:
        _register(selector, process, excerpts, given)
        while selector.get_map() or process.poll() is None:
            for key, _ in selector.select(_POLL_SECONDS):
                _move(selector, key)
            now = clock.elapsed_seconds()
            if process.poll() is not None:
                drained_at = drained_at or now + _DRAIN_SECONDS
                if now >= drained_at:
                    break
            elif deadline is not None and now >= deadline and not timed_out:
                timed_out = True
                kill_group(process.pid)
    return timed_out


def _register(
    selector: selectors.BaseSelector,
    process: subprocess.Popen[bytes],
    excerpts: tuple[Excerpt, Excerpt],
    given: bytes,
) -> None:
    for stream, excerpt in zip((process.stdout, process.stderr), excerpts, strict=True):
        if stream is not None:
            selector.register(stream, selectors.EVENT_READ, excerpt)
    if process.stdin is not None:
        if given:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE, [memoryview(given)])
        else:
            process.stdin.close()


def _move(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Read the next piece of a stream, or write the next of the input; one that is at its end is let go."""
    if isinstance(key.data, Excerpt):
        chunk = os.read(key.fd, _CHUNK_BYTES)
        key.data.feed(chunk)
        if not chunk:
            selector.unregister(key.fileobj)
        return
    try:
        rest = key.data[0][os.write(key.fd, key.data[0][:_CHUNK_BYTES]) :]
    except BrokenPipeError:  # the command does not want the rest
        rest = memoryview(b"")
    key.data[0] = rest
    if not rest:
        selector.unregister(key.fileobj)
        with contextlib.suppress(OSError):
            os.close(key.fd) if isinstance(key.fileobj, int) else key.fileobj.close()  # type: ignore[attr-defined]


@contextlib.contextmanager
def _lifeline(key: str) -> Iterator[int]:
    """The locked file that a command is started with; refused while an earlier command with this key lives."""
    path = _lifeline_path(key)
    with opened(path, os.O_RDWR | os.O_CREAT, 0o600) as descriptor:
        if not try_lock(descriptor):
            raise BlockingIOError(f"an earlier process of this very call still runs (to see it: fuser -v {path})")
        yield descriptor


def _lifeline_path(key: str) -> Path:
    return _folder() / sha256(key.encode()).hexdigest()[:32]


def _folder() -> Path:
    """A folder of this user's own that is emptied when the machine starts, as are its processes."""
    folder = Path(tempfile.gettempdir()) / f"perdure-commands-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UsageError(
            f"{folder} is not a folder that only this user can enter.",
            safe="nothing was started.",
            hint=f"remove it, or set TMPDIR to another place: ls -ld {folder}",
        )
    return folder
