"""How an end is put into words, when hunger is blamed, and what follows from an end: pure, or on files made up here."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from perdure.settings import Settings
from perdure.worker.aftermath import (
    LONGEST_BUSY_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    Again,
    AwaitChange,
    Leave,
    Plan,
    decide,
    pause_seconds,
)
from perdure.worker.child import Child
from perdure.worker.death import cause_of, counter_file, exit_code_of, kills_in
from perdure.worker.line import Ended
from perdure.worker.reload import Watch

EXITED_3 = 3 << 8
REFUSED = 2 << 8
STORE_AWAY = 6 << 8


@pytest.mark.parametrize(
    ("status", "starved", "words", "code"),
    [
        (0, False, "exited with code 0", 0),
        (EXITED_3, False, "exited with code 3", 3),
        (signal.SIGKILL, False, "killed by signal 9 (SIGKILL)", 137),
        (signal.SIGKILL, True, "killed by signal 9 (out of memory)", 137),
        (signal.SIGSEGV | 0x80, False, "killed by signal 11 (SIGSEGV)", 139),
        (50, False, "killed by signal 50 (which has no name)", 178),
    ],
)
def test_end_is_put_into_words(status: int, words: str, code: int, *, starved: bool) -> None:
    assert cause_of(status, starved=starved) == words
    assert exit_code_of(status) == code


@pytest.mark.parametrize(
    ("own", "where", "text"),
    [
        ("0::/system.slice/perdure.service\n", "system.slice/perdure.service/memory.events", "oom 4\noom_kill 3\n"),
        ("0::/\n", "memory.events", "low 0\noom_kill 3\noom_group_kill 0\n"),
        ("4:memory:/docker/abc\n0::/\n", "memory/docker/abc/memory.oom_control", "under_oom 0\noom_kill 3\n"),
        ("4:memory:/docker/abc\n", "memory/memory.oom_control", "under_oom 0\noom_kill 3\n"),
        ("3:cpu,memory:/x\n", "memory/x/memory.oom_control", "oom_kill 3\n"),
    ],
)
def test_counter_of_our_own_control_group_is_found(tmp_path: Path, own: str, where: str, text: str) -> None:
    groups = tmp_path / "groups"
    counter = groups / where
    counter.parent.mkdir(parents=True)
    counter.write_text(text)
    (tmp_path / "own").write_text(own)
    assert counter_file(tmp_path / "own", groups) == counter
    assert kills_in(counter) == 3


def test_system_that_counts_nothing_blames_nobody(tmp_path: Path) -> None:
    assert counter_file(tmp_path / "nowhere", tmp_path) is None
    (tmp_path / "own").write_text("4:memory:/x\n3:cpu:/x\n0::/\n")
    assert counter_file(tmp_path / "own", tmp_path) is None
    assert kills_in(None) == 0


def child(*, ready: bool = True, runs: int = 0, ended: bool = False) -> Child:
    made = Child(0, hears=-1, tells=-1)
    made.worker_id = "w" if ready else ""
    made.runs = runs
    made.ended = Ended() if ended else None
    return made


def decided(
    made: Child, status: int, *, deaths: int = 1, asked: bool = False, reloading: bool = False, reload: bool = False
) -> Again | AwaitChange | Leave:
    plan = Plan(Settings(), reload=reload)
    return decide(made, status, deaths=deaths, asked=asked, reloading=reloading, plan=plan)


def test_worker_that_died_is_replaced_at_once_and_ever_later() -> None:
    assert decided(child(), signal.SIGKILL) == Again(0.0)
    pauses = [pause_seconds(deaths) for deaths in range(1, 100)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[1], pauses[-1]) == (0.0, 0.25, LONGEST_PAUSE_SECONDS)
    assert decided(child(runs=4), signal.SIGKILL, deaths=50) == Again(LONGEST_BUSY_PAUSE_SECONDS)
    assert decided(child(), 0) == Again(0.0), "one that exits by itself has died, whatever it says by that"


def test_worker_that_was_asked_to_end_is_not_replaced() -> None:
    assert decided(child(ended=True), 0) == Leave(0)
    assert decided(child(ended=True), signal.SIGKILL, asked=True) == Leave(0), "it had ended, and was only slow to go"
    assert decided(child(), signal.SIGKILL, asked=True) == Leave(137)
    assert decided(child(ended=True), 0, reloading=True) == Again(0.0)
    assert decided(child(), signal.SIGKILL, asked=True, reloading=True) == Leave(137)


def test_worker_that_cannot_begin_is_not_replaced_unless_the_store_was_there_before() -> None:
    assert decided(child(ready=False), REFUSED, deaths=0) == Leave(2)
    assert decided(child(ready=False), STORE_AWAY, deaths=0) == Leave(6)
    assert decided(child(ready=False), REFUSED, deaths=1) == Leave(2)
    assert decided(child(ready=False), STORE_AWAY, deaths=2) == Again(0.25)
    assert decided(child(ready=False), STORE_AWAY, deaths=0, reload=True) == Leave(6)
    assert decided(child(ready=False), signal.SIGSEGV, deaths=0) == Leave(139)
    assert decided(child(ready=False), REFUSED, deaths=0, reload=True) == AwaitChange()


def test_worker_that_is_killed_while_it_begins_is_replaced_where_one_like_it_has_begun_before() -> None:
    assert decided(child(ready=False), signal.SIGKILL, deaths=2) == Again(0.25)
    assert decided(child(ready=False), signal.SIGKILL, deaths=0) == Leave(137)
    assert decided(child(ready=False), signal.SIGKILL, deaths=2, asked=True) == Leave(0), "it had begun nothing"


def test_change_is_seen_once_and_a_file_that_is_gone_may_come_back(tmp_path: Path) -> None:
    file, watch = tmp_path / "app.py", Watch()
    file.write_text("1")
    watch.add(str(file))
    assert watch.changed() == []
    file.write_text("12")
    assert watch.changed() == [str(file)]
    assert watch.changed() == []
    file.unlink()
    assert watch.changed() == []
    file.write_text("123")
    assert watch.changed() == [str(file)]
    os.utime(file, ns=(0, 0))
    assert watch.changed() == [str(file)]


def test_file_that_was_written_after_the_worker_began_counts_as_changed_once(tmp_path: Path) -> None:
    file, watch = tmp_path / "app.py", Watch()
    file.write_text("1")
    watch.add(str(file), since=file.stat().st_mtime - 1)
    assert watch.changed() == [str(file)]
    watch.add(str(file), since=file.stat().st_mtime - 1)
    assert watch.changed() == []
