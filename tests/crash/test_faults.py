"""The store fails under a run: it says so, the run stops before its next effect, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from perdure.store.sqlite.log import PIECE_BYTES
from tests.crash.nursery import environment
from tests.crash.trial import KILLED
from tests.crash.workshop import Workshop
from tests.summary import note

NOBODY: Final = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
STORE_FILES: Final = ("", "-wal", "-shm", "-journal", "-mark", "-lock", "-life")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting and changing users needs root")


def can_trace() -> bool:
    probe = ["strace", "-o", os.devnull, "-e", "trace=none", "true"]
    return shutil.which("strace") is not None and subprocess.run(probe, check=False).returncode == 0


needs_strace = pytest.mark.skipif(not can_trace(), reason="strace is not installed, or tracing is not allowed")


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    (tmp_path / "notes").mkdir()
    return Workshop(tmp_path / "place" / "perdure.db", tmp_path / "notes")


@pytest.fixture
def small_disk(workshop: Workshop) -> Iterator[Path]:
    """A file system of 256 KB where the store is."""
    place = workshop.store.parent
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(place))
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@needs_root
def test_a_full_disk_stops_the_run_and_loses_nothing(workshop: Workshop, small_disk: Path) -> None:
    workshop.expect_refusal(workshop.run(CRASH_BYTES="3000", PERDURE_ROOM_MB="0"))
    assert 0 < len(workshop.noted("acknowledged")) < workshop.count
    assert not workshop.lost()
    workshop.expect_refusal(workshop.run(CRASH_BYTES="3000", PERDURE_ROOM_MB="0"))
    mount("-o", "remount,size=16m", str(small_disk))
    workshop.finish(CRASH_BYTES="3000", PERDURE_ROOM_MB="0")


def test_a_file_that_may_not_grow_stops_the_run_and_loses_nothing(workshop: Workshop) -> None:
    limited = ("sh", "-c", 'ulimit -f 600 && exec "$@"', "sh")
    workshop.expect_refusal(workshop.run(*limited, CRASH_BYTES="3000"))
    assert 0 < len(workshop.noted("acknowledged")) < workshop.count
    assert not workshop.lost()
    workshop.finish(CRASH_BYTES="3000")


@needs_root
def test_a_read_only_store_is_named_and_nothing_is_performed(workshop: Workshop, tmp_path: Path) -> None:
    with workshop.start() as process:
        while len(workshop.noted("acknowledged")) < 10:
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    performed = workshop.noted("performed")
    read_only = tmp_path / "read-only"
    read_only.mkdir()
    mount("--bind", str(workshop.store.parent), str(read_only))
    try:
        mount("-o", "remount,ro,bind", str(read_only))
        elsewhere = Workshop(read_only / "perdure.db", workshop.notes)
        ended = elsewhere.run()
        elsewhere.expect_refusal(ended)
        assert "may not be written" in ended.err
        assert elsewhere.noted("performed") == performed
    finally:
        subprocess.run(["umount", "--lazy", str(read_only)], check=True)
    workshop.finish()


@pytest.fixture
def public_workshop() -> Iterator[Workshop]:
    """A place that any user may enter, with notes that any user may write."""
    with tempfile.TemporaryDirectory() as folder:
        place, notes = Path(folder) / "place", Path(folder) / "notes"
        for made, mode in ((Path(folder), 0o755), (place, 0o755), (notes, 0o777)):
            made.mkdir(exist_ok=True)
            made.chmod(mode)
        probe = [*NOBODY, sys.executable, "-c", "import perdure, tests.crash.labour"]
        if subprocess.run(probe, env=environment(), cwd=notes, capture_output=True, check=False).returncode:
            pytest.skip("the unprivileged user cannot read this checkout")
        yield Workshop(place / "perdure.db", notes)


@needs_root
def test_a_user_without_rights_is_told_so_and_starts_nothing(public_workshop: Workshop) -> None:
    ended = public_workshop.run(*NOBODY)
    public_workshop.expect_refusal(ended)
    assert public_workshop.noted("bodies") == []
    assert public_workshop.run().returncode == 0


@needs_root
def test_a_user_without_rights_cannot_resume_and_harms_nothing(public_workshop: Workshop) -> None:
    with public_workshop.start() as process:
        while len(public_workshop.noted("acknowledged")) < 10:
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    before = public_workshop.noted("bodies")
    public_workshop.expect_refusal(public_workshop.run(*NOBODY))
    assert public_workshop.noted("bodies") == before
    public_workshop.finish()


def strace(workshop: Workshop, call: str, what: str) -> tuple[str, ...]:
    """A command that disturbs the labour at system calls on the files of its store."""
    place = workshop.store.parent
    files = [place, *(place / f"perdure.db{suffix}" for suffix in STORE_FILES)]
    touching = [part for file in files for part in ("-P", str(file))]
    trace = str(workshop.notes / "trace")
    return ("strace", "-f", "-qq", "-y", "-o", trace, *touching, "-e", f"trace={call}", "-e", f"inject={call}:{what}")


def is_of_the_room(line: str) -> bool:
    """Whether this call writes the zeros that make room in a log; without them it grows by itself."""
    written = re.search(r'^[^(]*pwrite64\(\d+<[^>]*-wal>, "(?:\\0)+"\.*, (\d+),', line)
    return written is not None and int(written.group(1)) >= PIECE_BYTES // 2


def fail_at(workshop: Workshop, call: str, error: str, when: str) -> None:
    ended = workshop.run(*strace(workshop, call, f"error={error}:when={when}"))
    injected = [line for line in (workshop.notes / "trace").read_text().splitlines() if "(INJECTED)" in line]
    assert injected
    harmless = [line for line in injected if f"<{workshop.store.parent}>" in line or is_of_the_room(line)]
    if injected != harmless:  # SQLite goes on after a folder's failed sync, and we without room in its log
        workshop.expect_refusal(ended)
    expect_nothing_lost(workshop, f"{error} at {call} {when}")


SYNCS: Final = (*range(1, 12), *range(12, 70, 3))
WRITES: Final = (*range(1, 30), *range(30, 330, 9))
"""The labour syncs and writes at least so often; what comes first makes the store."""


@needs_strace
@pytest.mark.parametrize("when", ["3", "30", "31", "32+"])
def test_a_failed_sync_stops_the_run_and_loses_nothing(workshop: Workshop, when: str) -> None:
    fail_at(workshop, "fdatasync", "EIO", when)


@needs_strace
@pytest.mark.parametrize("when", ["40", "100+"])
def test_a_write_without_room_stops_the_run_and_loses_nothing(workshop: Workshop, when: str) -> None:
    fail_at(workshop, "pwrite64", "ENOSPC", when)


@needs_strace
def test_an_unreadable_page_is_told_in_three_lines(workshop: Workshop) -> None:
    fail_at(workshop, "pread64", "EIO", "13")


@needs_strace
@pytest.mark.parametrize(("call", "when"), [("fdatasync", 31), ("pwrite64", 150), ("unlink", 1)])
def test_a_kill_inside_a_system_call_loses_nothing(workshop: Workshop, call: str, when: int) -> None:
    kill_at(workshop, call, when)


@needs_strace
@pytest.mark.torture
@pytest.mark.parametrize("when", [f"{number}+" if number % 2 else f"{number}" for number in SYNCS])
def test_a_failure_of_any_sync_stops_the_run_and_loses_nothing(workshop: Workshop, when: str) -> None:
    fail_at(workshop, "fdatasync", "EIO", when)


@needs_strace
@pytest.mark.torture
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("when", [f"{number}+" if number % 2 else f"{number}" for number in WRITES])
def test_a_failure_of_any_write_stops_the_run_and_loses_nothing(workshop: Workshop, when: str, error: str) -> None:
    fail_at(workshop, "pwrite64", error, when)


@needs_strace
@pytest.mark.torture
@pytest.mark.parametrize("error", ["EIO", "EMFILE"])
@pytest.mark.parametrize("when", ["1", "2+", "3", "5+", "8", "10+", "12"])
def test_a_failure_to_open_any_file_is_told_and_loses_nothing(workshop: Workshop, when: str, error: str) -> None:
    ended = workshop.run(*strace(workshop, "openat", f"error={error}:when={when}"))
    if ended.returncode:  # some files SQLite can do without
        workshop.expect_refusal(ended)
    expect_nothing_lost(workshop, f"{error} at openat {when}")


@needs_strace
@pytest.mark.torture
@pytest.mark.parametrize("when", ["1", "3+", "6", "9+", "13", "20", "30+"])
def test_a_failure_of_any_reading_is_told_and_loses_nothing(workshop: Workshop, when: str) -> None:
    fail_at(workshop, "pread64", "EIO", when)


@needs_strace
@pytest.mark.torture
@pytest.mark.parametrize("when", SYNCS)
def test_a_kill_inside_any_sync_loses_nothing(workshop: Workshop, when: int) -> None:
    kill_at(workshop, "fdatasync", when)


@needs_strace
@pytest.mark.torture
@pytest.mark.parametrize("when", WRITES)
def test_a_kill_inside_any_write_loses_nothing(workshop: Workshop, when: int) -> None:
    kill_at(workshop, "pwrite64", when)


@needs_strace
@pytest.mark.torture
@pytest.mark.parametrize(
    ("call", "count"), [("unlink", 1), ("mkdir", 2), ("ftruncate", 1), ("flock", 3), ("openat", 12), ("fcntl", 200)]
)
def test_a_kill_while_the_store_is_being_made_or_locked_loses_nothing(tmp_path: Path, call: str, count: int) -> None:
    for when in range(1, count + 1, max(1, count // 20)):
        place = tmp_path / str(when)
        (place / "notes").mkdir(parents=True)
        kill_at(Workshop(place / "place" / "perdure.db", place / "notes"), call, when)


def kill_at(workshop: Workshop, call: str, when: int) -> None:
    ended = workshop.run(*strace(workshop, call, f"signal=KILL:when={when}"))
    assert ended.returncode == KILLED, ended.err
    expect_nothing_lost(workshop, f"killed in {call} {when}")


def expect_nothing_lost(workshop: Workshop, what: str) -> None:
    acknowledged, lost = workshop.acknowledged(), workshop.lost()
    in_doubt = workshop.finish()
    kind = "kills" if what.startswith("killed") else "errors"
    note("inside a system call", trials=1, landed={kind: 1}, planned=1, in_doubt=in_doubt, lost=len(lost))
    print(f"\n{what}: {len(acknowledged)} acknowledged, {len(lost)} lost, 0 effects repeated, {in_doubt} in doubt")
    assert not lost


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)
