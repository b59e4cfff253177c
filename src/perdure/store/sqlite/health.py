"""Looking at a SQLite store's health from outside: its place, its files, whether it can be read and written.

Nothing is changed but for a probe file, which is removed.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from perdure.errors import PerdureError
from perdure.store.health import Level, Sign, file_system, file_system_words, measure
from perdure.store.sql import load_schema
from perdure.store.sqlite.connect import check_schema, connect_to_read, explain, gate, refuse_directory
from perdure.store.sqlite.loss import hidden_damage, missing
from perdure.store.sqlite.presence import is_locked, is_named_lock_held, read_mark
from perdure.store.sqlite.statements import Q, count_commits, fetch, worker_of
from perdure.telemetry.text import counted, octets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.records import Worker

LITTLE_ROOM_BYTES: Final = 200 * 1000 * 1000
NO_ROOM_BYTES: Final = 1000 * 1000
LONG_LOG_BYTES: Final = 64 * 1000 * 1000
_OTHERS: Final = 0o077
_MILLI: Final = 1000


class Examined:
    """What a look found, and whether the store can be read any further."""

    def __init__(self, path: Path, *, busy_seconds: float, room_bytes: int = NO_ROOM_BYTES) -> None:
        self.path = path
        self._room_bytes = max(room_bytes, NO_ROOM_BYTES)
        self.signs: list[Sign] = []
        self.is_readable = False
        self.workers: list[Worker] = []
        self._seconds = busy_seconds
        self.signs += _engine_signs()
        try:
            self._look()
        except OSError as error:
            self.signs.append(_failed("store", explain(error, path)))

    @property
    def dead_workers(self) -> list[Worker]:
        """Workers whose process is known to be gone."""
        return [worker for worker in self.workers if is_locked(_beside(self.path, "life"), worker) is False]

    def _look(self) -> None:
        path = self.path
        try:
            refuse_directory(path)
        except PerdureError as error:
            self.signs.append(Sign("store", "problem", error.message, error.hint))
            return
        self.signs += _room_signs(path, room_bytes=self._room_bytes)
        mark = _beside(path, "mark")
        if path.exists() and path.stat().st_size:
            self.signs += _permission_signs(path)
            self._look_inside()
        elif mark.exists():
            lost = f"The database {path} is gone or empty, but {mark.name} says that it held commits."
            fix = f"put {path.name} back; or, to start with an empty store: rm {shlex.quote(str(mark))}"
            self.signs.append(Sign("store", "problem", lost, fix))
        else:
            self.signs.append(Sign("store", "ok", f"there is none yet; the first run makes {path}"))

    def _look_inside(self) -> None:
        try:
            connection = connect_to_read(self.path, busy_seconds=self._seconds)
        except apsw.Error as error:
            self.signs.append(_failed("store", explain(error, self.path)))
            return
        slots = read_mark(_beside(self.path, "mark")) if os.access(_beside(self.path, "mark"), os.R_OK) else None
        try:
            version = check_schema(connection, self.path)
            known = len(load_schema("sqlite"))
            if version < known:
                words = f"version {version}; the next command brings it up to {known}"
                self.signs.append(Sign("schema", "ok", words))
                return
            self.signs.append(Sign("schema", "ok", f"version {version}"))
            damage = hidden_damage(connection)
            if damage:
                self.signs.append(Sign("store", "problem", f"{self.path} is damaged ({damage})", "perdure verify"))
            self.workers = [worker_of(row) for row in fetch(connection, "list_workers")]
            self.signs += _mark_signs(self.path, slots, count_commits(connection))
            self.is_readable = not damage
        except (PerdureError, apsw.Error, UnicodeDecodeError) as error:
            self.signs.append(_failed("store", explain(error, self.path)))
            return
        finally:
            connection.close()
        self.signs += self._written_signs()

    def _written_signs(self) -> Iterator[Sign]:
        """Whether the database can be written: a transaction is begun, and nothing is done in it."""
        try:
            connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        except apsw.Error as error:
            yield _failed("writing", explain(error, self.path))
            return
        try:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.set_busy_timeout(int(self._seconds * _MILLI))
            connection.execute(Q["begin"])
            connection.execute("ROLLBACK")
            yield Sign("writing", "ok", f"{self.path} can be written")
        except apsw.Error as error:
            yield _failed("writing", explain(error, self.path))
        finally:
            connection.close()
        log = _beside(self.path, "wal")
        size = log.stat().st_size if log.exists() else 0
        if size > LONG_LOG_BYTES:
            what = f"{log.name} holds {octets(size)}: a process has been reading for long, or many write at once"
            yield Sign("log", "warning", what, f"see who uses it: fuser {shlex.quote(str(self.path))}")
        yield from self._life_signs()

    def _life_signs(self) -> Iterator[Sign]:
        folder = _beside(self.path, "life")
        known = {worker.worker_id for worker in self.workers}
        names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
        left = [name for name in names if name not in known and not is_named_lock_held(folder, name)]
        alive = len(self.workers) - len(self.dead_workers)
        words = f"{counted(alive, 'live process')[:-1]}es" if alive != 1 else "1 live process"
        dead = f", {len(self.dead_workers)} dead and not forgotten yet" if self.dead_workers else ""
        litter = f", {counted(len(left), 'file')} left by others in {folder.name}" if left else ""
        yield Sign("workers", "ok", f"{words}{dead}{litter}")


def _engine_signs() -> Iterator[Sign]:
    try:
        gate()
        yield Sign("engine", "ok", f"SQLite {apsw.sqlite_lib_version()}")
    except PerdureError as error:
        yield _failed("engine", error)


def _room_signs(path: Path, *, room_bytes: int) -> Iterator[Sign]:
    """The file system, the room on it, and whether what is synced there is really kept."""
    folder = next(parent for parent in path.parents if parent.exists())
    kind = file_system(folder)
    words = file_system_words(kind)
    move = f"choose a place on a local disk: PERDURE_STORE or --store (now {path})"
    if words:
        yield Sign("place", "warning", f"{folder} is on {kind}, which {words}", move)
    else:
        yield Sign("place", "ok", f"{folder} is on {kind}" if kind else str(folder))
    disk = os.statvfs(folder)
    left = disk.f_bavail * disk.f_frsize
    level: Level = "problem" if left < room_bytes else "warning" if left < LITTLE_ROOM_BYTES else "ok"
    fix = f"free space under {folder}; perdure gc removes old runs" if level != "ok" else ""
    yield Sign("disk", level, f"{octets(left)} left under {folder}", fix)
    try:
        device = measure(folder)
    except OSError as error:
        yield _failed("folder", explain(error, folder / path.name))
        return
    yield Sign("folder", "ok", f"{folder} can be written")
    measured = f"a synced write takes {_micro(device.synced_seconds)}, another {_micro(device.unsynced_seconds)}"
    if device.is_suspicious:
        yield Sign(
            "sync", "warning", f"{measured}: nothing seems to wait for a device, so power loss may cost steps", move
        )
    else:
        yield Sign("sync", "ok", measured)


def _permission_signs(path: Path) -> Iterator[Sign]:
    """Journals hold what agents saw: nobody but the owner should read them, and the owner should be who runs this."""
    files = [file for file in (path, *(_beside(path, what) for what in ("wal", "mark", "lock"))) if file.exists()]
    folders = [path.parent] if path.parent.name == ".perdure" else []
    open_to_others = [file for file in (*folders, *files) if stat.S_IMODE(file.stat().st_mode) & _OTHERS]
    foreign = [file for file in files if file.stat().st_uid != os.geteuid()]
    for file in open_to_others:
        mode = "700" if file.is_dir() else "600"
        what = f"{file.name} is open to other users ({stat.S_IMODE(file.stat().st_mode):o})"
        yield Sign("permissions", "warning", what, f"chmod {mode} {shlex.quote(str(file))}")
    for file in foreign:
        what = f"{file.name} belongs to user {file.stat().st_uid}, this is {os.geteuid()}"
        yield Sign("permissions", "warning", what, f"run perdure as user {file.stat().st_uid}")
    if not open_to_others and not foreign:
        yield Sign("permissions", "ok", "the files are their owner's alone")


def _mark_signs(path: Path, slots: object, found: int) -> Iterator[Sign]:
    mark = _beside(path, "mark")
    if not isinstance(slots, list) or not slots:
        if found:
            what = f"{mark.name} is missing or empty: lost commits could not be noticed; the next writer makes it anew"
            yield Sign("mark", "warning", what, "see that nothing deletes it")
        return
    gone = missing(slots, found=found)
    if gone is not None:
        what = f"{gone.acknowledged} commits were acknowledged, the database holds {gone.found}: the rest is lost"
        yield Sign("mark", "problem", what, "put back the newest copy of the database; or go on: perdure verify")
    elif None in slots:
        yield Sign(
            "mark", "warning", f"a slot of {mark.name} is damaged; its next owner writes it anew", "perdure verify"
        )
    else:
        yield Sign("mark", "ok", f"{counted(found, 'commit')}, none lost")


def _failed(about: str, error: PerdureError) -> Sign:
    return Sign(about, "problem", error.message, error.hint)


def _micro(seconds: float) -> str:
    micro = seconds * 1_000_000
    return f"{micro:.0f} µs" if micro < _MILLI else f"{micro / _MILLI:.1f} ms"


def _beside(path: Path, what: str) -> Path:
    return path.with_name(f"{path.name}-{what}")
