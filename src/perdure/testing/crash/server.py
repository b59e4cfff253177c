"""The local PostgreSQL server of a store, killed like the kernel kills, and started again by its own command line.

Whoever names a server here may lose the sessions of everybody who uses it. So a server is only touched where it runs on
this machine, can be started again by us as its own user, and nobody else is connected to it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import shlex
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure import clock
from perdure.errors import StoreUnavailable, UsageError
from perdure.store.postgres.location import read_location

if TYPE_CHECKING:
    import psycopg

START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_IN_THE_BACKGROUND: Final = '"$@" >&2 & echo $!'
"""Starts a command that nobody waits for: it is no child of ours, and says its number."""

_UNTOUCHED: Final = "nothing was started, and the server was not touched."


class Stranger(Struct, frozen=True):
    """A session of somebody else."""

    database: str
    user: str
    program: str

    def __str__(self) -> str:
        return f"{self.user} in {self.database}" + (f" ({self.program})" if self.program else "")


class Postmaster(Struct, frozen=True):
    """The process that is the server, and all that is needed to start it again."""

    pid: int
    command: tuple[str, ...]
    executable: str
    folder: str
    environment: dict[str, str]
    user: int
    group: int
    output: str
    """The file that its messages go to; empty where they go elsewhere."""

    def shown(self) -> str:
        """The command that a person would type to start it."""
        started = shlex.join((self.executable, *self.command[1:]))
        return started if self.user == os.geteuid() else f"sudo -u {_user_name(self.user)} {started}"


class Server:
    """The server of one store."""

    def __init__(self, url: str) -> None:
        self._location = read_location(url)
        self._own: set[int] = set()
        """The sessions that this object has had."""
        with self._connected() as connection:
            _refuse_remote(connection)
            self.postmaster = _find_postmaster(connection)
        _refuse_without_rights(self.postmaster)

    def strangers(self, *, besides: str = "") -> list[Stranger]:
        """Who else is connected: everybody but ourselves, and programs of this name."""
        query = (
            "SELECT coalesce(datname, ''), coalesce(usename, ''), application_name FROM pg_stat_activity"
            " WHERE backend_type IN ('client backend', 'walsender') AND pid <> ALL(%s)"
            " AND (%s = '' OR application_name <> %s)"
        )
        with self._connected() as connection:  # a session of ours that has just ended may still be listed
            return [Stranger(*row) for row in connection.execute(query, (list(self._own), besides, besides))]

    def refuse_strangers(self, *, besides: str = "") -> None:
        """Say whom a kill would hit, if it would hit anybody."""
        found = self.strangers(besides=besides)
        if found:
            named = ", ".join(sorted({str(stranger) for stranger in found})[:5])
            raise UsageError(
                f"--kill-database would end the sessions of others: {len(found)} are connected ({named}).",
                safe=_UNTOUCHED,
                hint="name a server that nobody else uses, such as one started for this test",
            )

    def kill(self) -> None:
        """Kill the server with SIGKILL, and wait until its own processes have noticed and left."""
        folder = Path(self.postmaster.folder)
        os.kill(self.postmaster.pid, signal.SIGKILL)
        until = clock.elapsed_seconds() + START_SECONDS
        while _is_busy(folder):
            if clock.elapsed_seconds() > until:
                raise self._does_not_start("its processes do not end")
            clock.sleep(_POLL_SECONDS)
        if Path(f"/proc/{self.postmaster.pid}").exists():
            _release_locks(folder, self.postmaster.pid)

    def start_again(self) -> None:
        """Serve again: by its own command line, unless somebody else has started it already."""
        until = clock.elapsed_seconds() + START_SECONDS
        started = 0
        while not self._is_serving():
            if clock.elapsed_seconds() > until:
                raise self._does_not_start(f"it does not answer after {START_SECONDS:g} s")
            if not _is_process(started):  # what is left of the killed one must have gone first
                started = _launched(self.postmaster)
            clock.sleep(_POLL_SECONDS)
        with self._connected() as connection:
            self.postmaster = _find_postmaster(connection)

    def _is_serving(self) -> bool:
        with contextlib.suppress(StoreUnavailable), self._connected():
            return True
        return False

    def _does_not_start(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"The PostgreSQL server that was killed is not back: {why}.",
            safe="what it acknowledged is on its disk.",
            hint=f"start it by hand: {self.postmaster.shown()}",
        )

    @contextlib.contextmanager
    def _connected(self) -> Any:
        import psycopg

        try:
            connection = psycopg.connect(
                self._location.url, autocommit=True, connect_timeout=5, application_name="perdure crash"
            )
        except psycopg.OperationalError as error:
            raise StoreUnavailable(
                f"The PostgreSQL server cannot be reached: {self._location.scrubbed(str(error)).strip()}",
                safe="nothing was started.",
                hint="see that it runs, and name it: --store postgresql://USER@localhost/DATABASE",
            ) from error
        self._own.add(connection.info.backend_pid)
        with connection:
            yield connection


def _refuse_remote(connection: psycopg.Connection[Any]) -> None:
    """A server on another machine is not ours to kill."""
    host = connection.info.hostaddr or connection.info.host
    if host.startswith("/") or not host:
        return
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    raise UsageError(
        f"--kill-database kills a server on this machine; this one is at {host}.",
        safe=_UNTOUCHED,
        hint="name a local server: --store postgresql://USER@localhost/DATABASE",
    )


def _find_postmaster(connection: psycopg.Connection[Any]) -> Postmaster:
    """The parent of our own backend, if it is a process that can be seen here, in the folder of its data."""
    row = connection.execute("SELECT pg_backend_pid(), current_setting('port')").fetchone()
    backend, port = row if row is not None else (0, "")
    try:
        pid = _parent_of(backend)
        place = Path(f"/proc/{pid}")
        folder = place.joinpath("cwd").resolve(strict=True)
        lines = folder.joinpath("postmaster.pid").read_text().splitlines()
        if lines[0].strip() != str(pid) or lines[3].strip() != port:
            raise _not_here("another process answers for it")
        if place.joinpath("ns/pid").stat().st_ino != Path("/proc/self/ns/pid").stat().st_ino:
            raise _not_here("it runs in a container")
        return Postmaster(
            pid=pid,
            command=tuple(place.joinpath("cmdline").read_bytes().decode().rstrip("\0").split("\0")),
            executable=str(place.joinpath("exe").readlink()),
            folder=str(folder),
            environment=_environment_of(place),
            user=place.stat().st_uid,
            group=place.stat().st_gid,
            output=_output_of(place),
        )
    except PermissionError as error:
        raise UsageError(
            "--kill-database may not look at the process of this PostgreSQL server: it belongs to another user.",
            safe=_UNTOUCHED,
            hint="start the same command as the server's user or as root",
        ) from error
    except (OSError, IndexError, ValueError) as error:
        raise _not_here(f"its process cannot be found ({error})") from error


def _not_here(why: str) -> UsageError:
    return UsageError(
        f"--kill-database kills a server that runs as a process on this machine: {why}.",
        safe=_UNTOUCHED,
        hint="name a server that was started here, not in a container, on a Linux machine",
    )


def _refuse_without_rights(postmaster: Postmaster) -> None:
    if os.geteuid() not in (0, postmaster.user):
        raise UsageError(
            f"--kill-database may not kill this PostgreSQL server: it runs as {_user_name(postmaster.user)}.",
            safe=_UNTOUCHED,
            hint=f"start the same command as {_user_name(postmaster.user)} or as root",
        )


def _launched(postmaster: Postmaster) -> int:
    """Start it as its own user, in its own folder, so that it outlives us and the terminal; its process number."""
    is_other = os.geteuid() != postmaster.user
    with open(postmaster.output or os.devnull, "ab") as messages:  # noqa: PTH123 - a path that may be the null device
        told = subprocess.run(  # noqa: S603 - the command it was started with
            ["/bin/sh", "-c", _IN_THE_BACKGROUND, "sh", postmaster.executable, *postmaster.command[1:]],
            cwd=postmaster.folder,
            env=postmaster.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            start_new_session=True,
            user=postmaster.user if is_other else None,
            group=postmaster.group if is_other else None,
            extra_groups=() if is_other else None,
            check=True,
        )
    return int(told.stdout)


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _environment_of(place: Path) -> dict[str, str]:
    pairs = place.joinpath("environ").read_bytes().decode(errors="surrogateescape").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def _output_of(place: Path) -> str:
    """The file that its messages go to, if it is one that can be opened again."""
    with contextlib.suppress(OSError):
        target = place.joinpath("fd/2").readlink()
        if target.is_file():
            return str(target)
    return ""


def _is_process(pid: int) -> bool:
    """Whether a process lives; one that has ended and was not asked about yet does not."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def _release_locks(folder: Path, pid: int) -> None:
    """Remove the locks of a dead server of which whoever started it has not taken note: its number is still taken.

    Another server would take it for one that runs. No process of it is left, which is what the locks are for.
    """
    own = folder / "postmaster.pid"
    with contextlib.suppress(OSError, IndexError):
        lines = own.read_text().splitlines()
        for lock in (own, Path(lines[4]) / f".s.PGSQL.{lines[3].strip()}.lock"):
            if lock.read_text().splitlines()[0].strip() == str(pid):
                lock.unlink()


def _is_busy(folder: Path) -> bool:
    """Whether any process works in this folder, as every process of a server does."""
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdecimal() and place.joinpath("cwd").readlink() == folder:
                return True
    return False


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
