"""`write_file` and `append_once`, killed before every system call they make."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import tools
from perdure.errors import UsageError
from tests.sampling import every, points
from tests.summary import note
from tests.tools.workbench import Workbench, needs_strace

OLD = "old " * 5000
NEW = "new " * 7000


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if ".perdure-new-" in path.name or "pending" in path.name]


@needs_strace
@every(sampled=16, tortured=1)
@pytest.mark.parametrize("before", [OLD, None])
def test_a_write_killed_before_any_system_call_leaves_old_or_new_and_resumes_by_itself(
    bench: Workbench, before: str | None, stride: int
) -> None:
    target = bench.work / "report.txt"
    arguments = {"path": str(target), "content": NEW}
    put(target, before)
    moments = bench.moments("write_file", arguments)
    calls = [moment.call for moment in moments]
    renamed = calls.index("rename")
    assert calls[renamed - 2 : renamed] in (["write", "fsync"], ["fchmod", "fsync"])
    assert [moment.shown.rpartition("work")[2][:1] for moment in moments if moment.call == "fsync"][-2:] == ["/", ">"]
    moments = [*points(moments[:renamed], stride), *points(moments[renamed:], stride)]
    landed = torn = 0
    for moment in moments:
        put(target, before)
        landed += bench.kill_at(moment, "write_file", arguments)
        found = target.read_text() if target.exists() else None
        assert found in (before, NEW), moment
        torn += bool(leftovers(bench.work))
        bench.expect_done("write_file", arguments)
        assert target.read_text() == NEW, moment
        assert leftovers(bench.work) == [], moment
    print(f"\n{landed} of {len(moments)} kills landed, {torn} left a file beside the target")
    note("files written by tools", trials=len(moments), landed={"kills": landed}, planned=len(moments))
    assert landed == len(moments)
    assert torn


@needs_strace
@every(sampled=16, tortured=1)
def test_a_line_killed_before_any_system_call_is_there_exactly_once_after_the_resume(
    bench: Workbench, stride: int
) -> None:
    target = bench.work / "log.txt"
    arguments = {"path": str(target), "line": "the line " * 1000}
    line = arguments["line"] + "\n"
    before = "first\n"
    clear_log(target, before)
    moments = bench.moments("append_once", arguments)
    calls = [moment.call for moment in moments if moment.call != "openat"]
    pending, folder, appended, listed = ["write", "fsync"], ["fsync"], ["write", "fsync", "fsync"], ["write", "fsync"]
    assert calls[:-1] == ["flock", *pending, *folder, *appended, *listed, "unlink"]
    moments = points(moments, stride)
    landed = 0
    for moment in moments:
        clear_log(target, before)
        landed += bench.kill_at(moment, "append_once", arguments)
        assert target.read_text() in (before, before + line), moment
        bench.expect_done("append_once", arguments)
        assert target.read_text() == before + line, moment
        assert leftovers(bench.work) == []
    print(f"\n{landed} of {len(moments)} kills landed")
    note("files written by tools", trials=len(moments), landed={"kills": landed}, planned=len(moments))
    assert landed == len(moments)


@pytest.mark.parametrize("there", [0, 1, 100, 8999, 9001])
def test_a_torn_line_is_completed_by_whoever_comes_next(work: Path, there: int) -> None:
    target, line = work / "log.txt", "x" * 9000 + "\n"
    torn = leave_torn(target, line, there)
    tools.append_once(target, "another")
    assert target.read_text() == "first\n" + line + "another\n", torn
    assert leftovers(work) == []


def test_a_torn_line_behind_which_a_stranger_wrote_is_written_whole_once(work: Path) -> None:
    target, line = work / "log.txt", "x" * 9000 + "\n"
    leave_torn(target, line, 100)
    with target.open("a") as log:
        log.write("stranger\n")
    tools.append_once(target, "another")
    assert target.read_text() == "first\n" + "x" * 100 + "stranger\n" + line + "another\n"


def test_a_line_that_was_whole_before_a_stranger_wrote_is_not_doubled(work: Path) -> None:
    target, line = work / "log.txt", "x" * 9000 + "\n"
    leave_torn(target, line, 9001)
    with target.open("a") as log:
        log.write("stranger\n")
    tools.append_once(target, "another")
    assert target.read_text() == "first\n" + line + "stranger\nanother\n"


def test_a_pending_line_that_was_not_put_down_whole_was_never_begun(work: Path) -> None:
    target = work / "log.txt"
    leave_torn(target, "x" * 100 + "\n", 0)
    pending = work / ".log.txt.perdure-pending"
    pending.write_bytes(pending.read_bytes()[:-1])
    tools.append_once(target, "another")
    assert target.read_text() == "first\nanother\n"
    assert leftovers(work) == []


def test_a_line_without_room_leaves_the_file_as_it_was_and_fails(bench: Workbench) -> None:
    target = bench.work / "log.txt"
    limited = ("sh", "-c", 'ulimit -f 1200 && exec "$@"', "sh")
    small = {"path": str(target), "line": "y" * 100_000}
    target.write_bytes(b"x" * 550_000 + b"\n")
    before = target.read_bytes()
    ended = bench.run("append_once", small, *limited)
    assert ended.returncode == 1, ended
    assert "too large" in ended.err
    assert target.read_bytes() == before
    assert leftovers(bench.work) == []
    bench.expect_done("append_once", small)
    assert target.read_bytes() == before + b"y" * 100_000 + b"\n"


def test_lines_of_many_processes_at_once_never_mix(work: Path) -> None:
    target = work / "log.txt"
    code = (
        "import sys; from perdure import tools\n"
        "for number in range(10): tools.append_once(sys.argv[1], f'{sys.argv[2]}-{number} ' * 3000)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(target), str(name)]) for name in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    lines = target.read_text().splitlines()
    assert sorted(lines) == sorted(f"{name}-{number} " * 3000 for name in range(3) for number in range(10))


def test_two_appends_of_the_same_line_in_one_run_are_two_lines(work: Path) -> None:
    @perdure.agent
    def agent() -> list[int]:
        return [tools.append_once(work / "log", "same").offset_bytes for _ in range(2)]

    assert perdure.run(agent, run_id="r") == [0, 5]
    assert perdure.run(agent, run_id="r") == [0, 5]
    assert (work / "log").read_text() == "same\nsame\n"


def test_a_file_that_holds_the_content_is_left_alone(work: Path) -> None:
    target = work / "a"
    target.write_text("same")
    before = target.stat()
    tools.write_file(target, "same")
    after = target.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_permissions_are_kept_or_set_and_links_are_followed(work: Path) -> None:
    target, link = work / "a", work / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    assert tools.write_file(link, b"new").path == str(target)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    tools.write_file(target, b"new", mode=0o600)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    tools.write_file(target, b"newer", mode=0o644)
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_what_a_living_writer_has_beside_the_file_is_not_removed(work: Path) -> None:
    import fcntl

    target = work / "a"
    living, dead = work / ".a.perdure-new-living", work / ".a.perdure-new-dead"
    dead.touch()
    with living.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        tools.write_file(target, "content")
        assert leftovers(work) == [living.name]
    tools.write_file(target, "content")
    assert leftovers(work) == []


def test_many_writers_of_one_file_all_succeed_and_one_of_them_is_last(work: Path) -> None:
    failures: list[BaseException] = []

    def write(name: int) -> None:
        try:
            for number in range(20):
                tools.write_file(work / "a", f"{name}-{number} " * 1000)
        except BaseException as error:  # noqa: BLE001 - asserted below
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (work / "a").read_text() in {f"{name}-19 " * 1000 for name in range(4)}
    assert leftovers(work) == []


@pytest.mark.parametrize("there", [0, 1, 40])
def test_a_torn_line_of_the_keys_is_no_key(work: Path, there: int) -> None:
    target = work / "log.txt"
    leave_torn(target, "line\n", 5)
    keys = work / ".log.txt.perdure-keys"
    keys.write_text(f"{'k' * 32} 0 1234567\n" + f"{'k' * 32} 6 5000000\n"[:there])
    tools.append_once(target, "another")
    assert target.read_text() == "first\nline\nanother\n"
    assert [len(line.split()) for line in keys.read_text().splitlines()] == [3, 3, 3]


@needs_strace
def test_somebody_elses_later_change_is_not_overwritten_without_asking(bench: Workbench) -> None:
    target = bench.work / "a"
    hook = {"path": str(target), "content": "ours"}
    moments = bench.moments("write_file", hook)
    target.unlink()
    bench.kill_at(moments[-1], "write_file", hook)
    assert target.read_text() == "ours"
    target.write_text("theirs")
    assert "changed by somebody else" in bench.expect_doubt("write_file", hook)
    assert target.read_text() == "theirs"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"path": ""}, "cannot name a file"),
        ({"path": "a\0b"}, "cannot name a file"),
        ({"path": 3}, "is not a path"),
        ({"content": {"x": 1}}, "content is a dict"),
        ({"mode": "rw"}, "no set of permissions"),
        ({"path": "a" * 250}, "too long"),
        ({"path": "."}, "no regular file"),
    ],
)
def test_a_misused_write_is_told_in_three_lines(
    work: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], named: str
) -> None:
    monkeypatch.chdir(work)
    with pytest.raises(UsageError, match=named) as raised:
        tools.write_file(**{"path": "a", "content": "x", **given})
    assert len(raised.value.lines()) == 3
    assert list(work.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "named"),
    [({"path": 3}, "is not a path"), ({"line": ""}, "is not a line"), ({"line": 3}, "is not a line")],
)
def test_a_misused_append_is_told_in_three_lines(work: Path, given: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        tools.append_once(**{"path": work / "a", "line": "x", **given})
    assert len(raised.value.lines()) == 3
    assert list(work.iterdir()) == []


def test_a_missing_folder_is_a_plain_failure_of_the_run(work: Path) -> None:
    @perdure.agent
    def agent() -> None:
        tools.write_file(work / "missing" / "a", "x")

    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            perdure.run(agent, run_id="r")
    (work / "missing").mkdir()
    perdure.run(agent, run_id="r")
    assert (work / "missing" / "a").read_text() == "x"


def put(target: Path, content: str | None) -> None:
    target.unlink(missing_ok=True)
    if content is not None:
        target.write_text(content)
        os.utime(target, (0, 0))


def clear_log(target: Path, content: str) -> None:
    for path in target.parent.iterdir():
        path.unlink()
    target.write_text(content)


def leave_torn(target: Path, line: str, there: int) -> str:
    """What a writer leaves that was killed inside its append."""
    from perdure.tools.append import Pending, _begin

    target.write_text("first\n")
    _begin(target, Pending("k", 6, line.encode()))
    with target.open("a") as log:
        log.write(line[:there])
    return line[:there]
