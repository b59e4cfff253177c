"""`perdure doctor`: every trouble of the store is one clear line with what to do, and looking changes nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apsw
import pytest

from perdure.store.health import file_system, file_system_words
from perdure.store.postgres import PostgresStore as SqlServer
from tests.faces.conftest import Place
from tests.postgres import schema_url

NOBODY: Final = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting and changing users needs root")


def checkup(place: Any, *arguments: str, code: int = 0, **environment: str) -> list[dict[str, Any]]:
    """What a doctor finds, after the other two ways to ask agree."""
    result = place.perdure("doctor", "--json", *arguments, **environment)
    assert result.code == code, result
    found = result.json()
    assert found["ready"] is (code == 0)
    quiet = place.perdure("doctor", "--quiet", *arguments, **environment)
    assert (quiet.code, quiet.out, quiet.err) == (code, "", "")
    shown = place.perdure("doctor", *arguments, **environment)
    assert (shown.code, shown.err) == (code, ""), shown
    assert "Traceback" not in shown.out
    checks: list[dict[str, Any]] = found["checks"]
    assert all(check["fix"] for check in checks if check["level"] != "ok")
    assert sum(check["level"] == "problem" for check in checks) == found["problems"]
    return checks


def level(checks: list[dict[str, Any]], about: str) -> str:
    """The worst that was said about something."""
    order = ("ok", "warning", "problem")
    return max((check["level"] for check in checks if check["about"] == about), key=order.index, default="nothing")


def one(checks: list[dict[str, Any]], about: str, wanted: str) -> dict[str, Any]:
    (found,) = [check for check in checks if (check["about"], check["level"]) == (about, wanted)]
    return found


def files(folder: Path) -> dict[str, bytes]:
    """What is in a folder, without what SQLite makes to read: its index of the log, and an empty log."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    return {name: content for name, content in contents.items() if content or not name.endswith("-wal")}


@pytest.fixture
def stopped(agent: Any) -> Any:
    """A store with one completed run, and one whose process was killed."""
    assert agent.python("work.py", "1").code == 0
    assert agent.python("work.py", "3", KILL="1").code == -signal.SIGKILL
    return agent


def test_healthy_store_is_ready_and_untouched(agent: Any) -> None:
    assert agent.python("work.py", "1").code == 0
    before = files(agent.folder)
    checks = checkup(agent)
    assert files(agent.folder) == before
    for about in (
        "settings",
        "engine",
        "disk",
        "folder",
        "permissions",
        "schema",
        "mark",
        "writing",
        "clock",
        "leases",
    ):
        assert level(checks, about) == "ok", about
    assert agent.perdure("doctor").out.splitlines()[-1].startswith("Ready: ")


def test_no_store_yet_says_what_will_be_made_and_makes_nothing(place: Any) -> None:
    checks = checkup(place)
    assert str(place.database) in one(checks, "store", "ok")["message"]
    assert list(place.folder.iterdir()) == []


def test_runs_that_need_somebody_are_named_with_the_command(stopped: Any) -> None:
    killed = stopped.name()
    checks = checkup(stopped)
    left = one(checks, "leases", "warning")
    assert killed in left["message"]
    assert left["fix"] == f"perdure resume {killed} --app work.py"
    assert "1 dead" in one(checks, "workers", "ok")["message"]
    assert stopped.python("work.py", "2", KILL="send").code == -signal.SIGKILL
    assert stopped.perdure("resume", "-", "--app", "work.py").code == 4
    doubtful = [check for check in checkup(stopped) if "in doubt" in check["message"]]
    assert [(check["level"], check["fix"]) for check in doubtful] == [("warning", "perdure ps")]


def test_commands_name_the_store_that_was_looked_at(stopped: Any) -> None:
    store = stopped.database.rename(stopped.database.with_name("moved.db"))
    for what in ("wal", "mark", "life"):
        beside = store.with_name(f"perdure.db-{what}")
        if beside.exists():
            beside.rename(store.with_name(f"moved.db-{what}"))
    fix = one(checkup(stopped, "--store", str(store)), "leases", "warning")["fix"]
    assert shlex.split(fix)[-2:] == ["--store", str(store)]


def test_directory_in_place_of_the_store_is_named(place: Any) -> None:
    place.database.mkdir(parents=True)
    problem = one(checkup(place, code=6), "store", "problem")
    assert "is a directory" in problem["message"]
    assert str(place.database / "perdure.db") in problem["fix"]


def test_file_that_is_no_database_is_named(place: Any) -> None:
    place.database.parent.mkdir(mode=0o700)
    place.database.write_text("This is a letter and no database. " * 200)
    place.database.chmod(0o600)
    assert "is no store of perdure's" in one(checkup(place, code=6), "store", "problem")["message"]


def test_foreign_database_is_named(place: Any) -> None:
    connection = apsw.Connection(str(place.folder / "thing.db"))
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    checks = checkup(place, "--store", "thing.db", code=6)
    assert "not one of perdure's" in one(checks, "store", "problem")["message"]


def test_newer_schema_is_named_and_not_touched(stopped: Any) -> None:
    connection = apsw.Connection(str(stopped.database))
    connection.pragma("user_version", 99)
    connection.close()
    before = files(stopped.folder)
    problem = one(checkup(stopped, code=6), "store", "problem")
    assert "newer perdure (schema 99" in problem["message"]
    assert problem["fix"] == "pip install --upgrade perdure"
    assert files(stopped.folder) == before


@pytest.mark.parametrize("size", [3000, 60_000])
def test_damaged_database_is_named(stopped: Any, size: int) -> None:
    stopped.perdure("resume", "-", "--app", "work.py")
    stopped.database.with_name("perdure.db-wal").unlink(missing_ok=True)
    with stopped.database.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * size)
    checks = checkup(stopped, code=6)
    assert "damaged" in " ".join(check["message"] for check in checks if check["level"] == "problem")


def test_database_that_is_gone_while_its_mark_is_there_is_a_loss(stopped: Any) -> None:
    stopped.database.unlink()
    problem = one(checkup(stopped, code=6), "store", "problem")
    assert "perdure.db-mark says that it held commits" in problem["message"]
    assert not stopped.database.exists()


def test_database_behind_its_mark_is_a_loss(agent: Any) -> None:
    agent.python("work.py", "2", KILL="0")
    log = agent.database.with_name("perdure.db-wal")
    older = log.read_bytes()
    agent.python("work.py", "2", KILL="1")
    log.write_bytes(older)
    agent.database.with_name("perdure.db-shm").unlink()
    problem = one(checkup(agent, code=6), "mark", "problem")
    assert "the rest is lost" in problem["message"]


def test_mark_that_is_gone_is_a_warning(stopped: Any) -> None:
    stopped.database.with_name("perdure.db-mark").unlink()
    assert "could not be noticed" in one(checkup(stopped), "mark", "warning")["message"]


def test_files_that_others_may_read_are_named_with_the_command_that_closes_them(stopped: Any) -> None:
    stopped.database.chmod(0o644)
    stopped.database.parent.chmod(0o755)
    for _ in range(2):
        fixes = [check["fix"] for check in checkup(stopped) if check["about"] == "permissions" and check["fix"]]
    assert fixes == [f"chmod 700 {stopped.database.parent}", f"chmod 600 {stopped.database}"]
    for fix in fixes:
        subprocess.run(shlex.split(fix), check=True)
    assert level(checkup(stopped), "permissions") == "ok"


def test_damaged_settings_are_named(place: Any) -> None:
    checks = checkup(place, code=6, PERDURE_STALL_SECONDS="soon")
    assert "PERDURE_STALL_SECONDS: a number is expected" in one(checks, "settings", "problem")["message"]


def test_records_of_the_future_say_that_the_clock_was_set_back(stopped: Any) -> None:
    early = (
        "import sys, time, runpy; before = time.time; time.time = lambda: before() - 7200;"
        "sys.argv = ['perdure', *sys.argv[1:]]; runpy.run_module('perdure', run_name='__main__')"
    )
    result = stopped.python("-P", "-c", early, "doctor", "--json")
    assert result.code == 0, result
    told = one(result.json()["checks"], "clock", "warning")
    assert "set back" in told["message"]


def test_somebody_who_writes_for_long_is_a_problem_only_after_the_time_to_wait(stopped: Any) -> None:
    connection = apsw.Connection(str(stopped.database))
    connection.execute("BEGIN IMMEDIATE")
    checks = checkup(stopped, code=6, PERDURE_OPEN_SECONDS="0.05")
    assert "locked by another process" in one(checks, "writing", "problem")["message"]
    connection.execute("ROLLBACK")
    connection.close()
    assert level(checkup(stopped), "writing") == "ok"


def test_store_on_a_server_is_looked_at_without_showing_its_password(place: Any) -> None:
    with schema_url() as url:
        checks = checkup(place, "--store", url)
        assert "there is none yet" in one(checks, "store", "ok")["message"]
        SqlServer(url).close()
        checks = checkup(place, "--store", url)
        assert "can be reached" in one(checks, "server", "ok")["message"]
    away = "postgresql://ada:secret-word@127.0.0.1:1/runs"
    for flags in (["--json"], []):
        told = place.perdure("doctor", "--store", away, *flags, PERDURE_OPEN_SECONDS="0.1")
        assert told.code == 6, told
        assert "cannot be reached" in told.out
        assert "secret-word" not in told.out + told.err


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting is not allowed: {done.stderr.strip()}")


@pytest.fixture
def small_disk(stopped: Any) -> Iterator[Path]:
    """The store on a file system of 1 MB, in memory."""
    aside = stopped.folder / "aside"
    stopped.database.parent.rename(aside)
    place = stopped.database.parent
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(place))
    try:
        shutil.copytree(aside, place, dirs_exist_ok=True, copy_function=shutil.copy2)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@needs_root
def test_file_system_in_memory_and_little_room_are_warnings(stopped: Any, small_disk: Path) -> None:
    mount("-o", "remount,size=64m", str(small_disk))
    checks = checkup(stopped)
    assert "tmpfs, which is memory" in one(checks, "place", "warning")["message"]
    assert "nothing seems to wait for a device" in one(checks, "sync", "warning")["message"]
    assert "left" in one(checks, "disk", "warning")["message"]


def fill(path: Path) -> None:
    """Take every byte that is left."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (65_536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(descriptor, bytes(size))
    finally:
        os.close(descriptor)


@needs_root
def test_full_disk_is_a_problem(stopped: Any, small_disk: Path) -> None:
    fill(small_disk / "filler")
    checks = checkup(stopped, code=6)
    assert level(checks, "disk") == "problem"
    problem = one(checks, "folder", "problem")
    assert "No room is left" in problem["message"]
    assert "free space" in problem["fix"]


@needs_root
def test_read_only_file_system_is_a_problem(stopped: Any) -> None:
    folder = stopped.database.parent
    mount("--bind", str(folder), str(folder))
    try:
        mount("-o", "remount,ro,bind", str(folder))
        problem = one(checkup(stopped, code=6), "folder", "problem")
        assert "may not be written" in problem["message"]
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    assert level(checkup(stopped), "folder") == "ok"


class Unprivileged(Place):
    """Commands as a user who owns nothing here."""

    def _run(self, arguments: list[str], typed: str | None, environment: dict[str, str]) -> Any:
        done = subprocess.run(
            [*NOBODY, sys.executable, *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            input=typed or "",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return _Result(done)


class _Result:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def unprivileged() -> Iterator[Unprivileged]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        place = Unprivileged(Path(folder))
        if place.perdure("--version").code:
            pytest.skip("the unprivileged user cannot read this checkout")
        yield place


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_user_without_rights_is_told_so(unprivileged: Unprivileged, mode: int) -> None:
    folder = unprivileged.database.parent
    folder.mkdir(mode=mode)
    shutil.copy(_made(unprivileged.folder), unprivileged.database)
    problems = [check for check in checkup(unprivileged, code=6) if check["level"] == "problem"]
    assert "may not be written" in " ".join(check["message"] for check in problems)


@needs_root
def test_user_who_cannot_make_a_store_is_told_so(unprivileged: Unprivileged) -> None:
    assert "may not be written" in one(checkup(unprivileged, code=6), "folder", "problem")["message"]


def _made(folder: Path) -> Path:
    from perdure.store.sqlite import SqliteStore

    SqliteStore(folder / "made" / "perdure.db").close()
    return folder / "made" / "perdure.db"


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /data rw - nfs4 server:/export rw
31 22 0:27 / /with\\040space rw - fuse.sshfs host:/ rw
32 30 0:28 / /data/local rw - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("folder", "kind", "words"),
    [
        ("/", "ext4", ""),
        ("/data/runs", "nfs4", "network file system"),
        ("/data/local/runs", "xfs", ""),
        ("/with space/x", "fuse.sshfs", "a program's own file system"),
        ("/database", "ext4", ""),
    ],
)
def test_file_systems_are_told_apart_by_the_mount_a_folder_is_on(
    tmp_path: Path, folder: str, kind: str, words: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert file_system(Path(folder), mounts) == kind
    assert words in file_system_words(kind)
    assert bool(file_system_words(kind)) is bool(words)
