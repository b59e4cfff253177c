"""The parent of a worker: one that dies is replaced, how it died is kept and shown, and an end is asked for once."""

from __future__ import annotations

import collections
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.faces.conftest import Place
from tests.worker.conftest import AGENTS, PATIENCE, Crew, on_a_server_too

ENDINGS = """
    @perdure.agent
    def ending(name: str, how: str) -> None:
        log(f"ending {name}")
        if how == "exits":
            os._exit(3)
        if how == "segfaults":
            import ctypes
            ctypes.string_at(0)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def told(crew: Crew, event: str) -> list[dict[str, Any]]:
    return [each for each in crew.told if each["event"] == event]


def is_there(pid: int) -> bool:
    """Whether a process runs; one that only waits to be noticed does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@on_a_server_too
def test_killed_process_is_replaced_and_its_run_goes_on_without_repeating_a_step(crew: Crew) -> None:
    run = crew.start("lingering", name="a")
    worker = crew.worker()
    crew.until(lambda: "holding a" in crew.log())
    killed = crew.hands(worker)
    os.kill(killed, signal.SIGKILL)
    crew.let_go("a")
    crew.until(lambda: run in crew.ended())
    counts = collections.Counter(crew.log())
    assert (counts["end a 0"], counts["holding a"], counts["end a 1"], counts["send a"]) == (1, 2, 1, 1)
    (died,) = told(crew, "worker_died")
    assert (died["process"], died["cause"]) == (killed, "killed by signal 9 (SIGKILL)")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("exits", "exited with code 3"),
        ("segfaults", "killed by signal 11 (SIGSEGV)"),
        ("kills", "killed by signal 9 (SIGKILL)"),
    ],
)
def test_run_that_ends_its_workers_is_parked_with_the_cause_of_each_death(crew: Crew, how: str, cause: str) -> None:
    crew.place.write("app.py", AGENTS + ENDINGS)
    run = crew.start("ending", name="a", how=how)
    crew.worker()
    crew.until(lambda: any(each["run_id"] == run for each in told(crew, "run_refused")))
    assert [each["cause"] for each in told(crew, "worker_died")] == [cause] * 3
    assert crew.log() == ["ending a"] * 3
    shown = crew.place.perdure("show", run)
    assert shown.out.count(f"on {socket.gethostname()}: {cause}") == 3, shown
    assert "ended 3 workers in a row" in shown.out
    assert "next: perdure resume " in shown.out
    assert cause in crew.place.perdure("show", run, "--json").json()["run"]["cause"]
    listed = crew.place.perdure("workers", "--json").json()["workers"]
    assert [each["death"] for each in listed] == ["", cause, cause, cause]
    assert f"died: {cause}" in crew.place.perdure("workers").out


@on_a_server_too
def test_cause_that_becomes_known_after_the_takeover_is_shown(crew: Crew) -> None:
    run = crew.start("lingering", name="a")
    first = crew.worker()
    crew.until(lambda: "holding a" in crew.log())
    killed = crew.hands(first)
    first.send_signal(signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    crew.let_go("a")
    crew.worker()
    crew.until(lambda: run in crew.ended())
    assert "SIGKILL" not in crew.place.perdure("show", run).out
    first.send_signal(signal.SIGCONT)
    crew.until(lambda: any("SIGKILL" in each["death"] for each in _workers(crew)))
    shown = crew.place.perdure("show", run).out
    assert f"(pid {killed} on {socket.gethostname()}): killed by signal 9 (SIGKILL)" in shown


def _workers(crew: Crew) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = crew.place.perdure("workers", "--json").json()["workers"]
    return listed


def test_killed_parent_takes_its_child_with_it(crew: Crew) -> None:
    run = crew.start("lingering", name="a")
    first = crew.worker()
    crew.until(lambda: "holding a" in crew.log())
    working = crew.hands(first)
    crew.kill(first)
    crew.until(lambda: not is_there(working))
    crew.let_go("a")
    crew.worker()
    crew.until(lambda: run in crew.ended())


LONELY = """
    from perdure.worker.line import Line

    hears, speaks = os.pipe()
    listens, tells = os.pipe()
    child = os.fork()
    if not child:
        os.close(speaks)
        Line(hears=hears, tells=tells, parent=os.getppid()).listen()
        os.write(1, b"ready\\n")  # in one go: it may be ended at once
        while True:
            time.sleep(1)
    sys.stdin.readline()
    os.close(speaks)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_child_ends_where_only_the_closed_line_tells_that_its_parent_is_gone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("lonely.py", LONELY)
    result = place.python("lonely.py")
    assert result.out.splitlines()[-1] == str(-signal.SIGKILL), result


@pytest.mark.parametrize(
    ("number", "whole_group"),
    [
        pytest.param(signal.SIGTERM, False, id="SIGTERM-parent"),
        pytest.param(signal.SIGINT, True, id="SIGINT-group"),
        pytest.param(signal.SIGHUP, True, id="SIGHUP-group"),
        pytest.param(signal.SIGTERM, True, id="SIGTERM-group", marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGINT, False, id="SIGINT-parent", marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGHUP, False, id="SIGHUP-parent", marks=pytest.mark.exhaustive),
    ],
)
def test_asked_once_it_drains_once_whoever_else_hears_the_signal(
    tmp_path: Path, number: int, *, whole_group: bool
) -> None:
    crew = Crew(Place(tmp_path))
    run = crew.start("lingering", name="a")
    worker = crew.worker("--grace", "60")
    crew.until(lambda: "holding a" in crew.log())
    os.killpg(worker.pid, number) if whole_group else worker.send_signal(number)
    crew.until(lambda: told(crew, "worker_draining"))
    assert crew.states()[run] == ("running", "")
    crew.let_go("a")
    assert worker.wait(PATIENCE) == 0
    assert len(told(crew, "worker_draining")) == len(told(crew, "worker_stopped")) == 1
    assert crew.states()[run] == ("queued", "")
    assert "end a 1" not in crew.log()
    assert not told(crew, "worker_died")
    crew.end()


@pytest.mark.parametrize("whole_group", [True, False], ids=["group", "parent"])
def test_asked_again_it_leaves_at_once(tmp_path: Path, *, whole_group: bool) -> None:
    crew = Crew(Place(tmp_path))
    crew.start("lingering", name="a")
    worker = crew.worker("--grace", "60")
    crew.until(lambda: "holding a" in crew.log())

    until = time.monotonic() + PATIENCE
    while worker.poll() is None and time.monotonic() < until:  # without a pause: it is asked while it leaves, too
        os.killpg(worker.pid, signal.SIGINT) if whole_group else worker.send_signal(signal.SIGINT)
    assert worker.wait(PATIENCE) == 130
    crew.until(lambda: [each["death"] for each in _workers(crew)] == ["asked twice to end, so it left at once"])
    crew.end()


def test_timeout_that_signals_the_worker_and_its_group_drains_it(tmp_path: Path) -> None:
    crew = Crew(Place(tmp_path))
    run = crew.start("lingering", name="a")
    worker = crew.worker("--grace", "60")
    crew.until(lambda: "holding a" in crew.log())
    for _ in range(20):  # as one of many pairs may be heard as two signals, however busy this machine is
        worker.send_signal(signal.SIGTERM)
        os.killpg(worker.pid, signal.SIGTERM)
    crew.until(lambda: told(crew, "worker_draining"))
    crew.let_go("a")
    assert worker.wait(PATIENCE) == 0
    assert crew.states()[run] == ("queued", "")
    crew.end()


def test_process_that_does_not_end_within_its_grace_is_killed(tmp_path: Path) -> None:
    crew = Crew(Place(tmp_path), more=HOLDS_THE_GIL)
    crew.start("greedy", name="a")
    worker = crew.worker("--grace", "1")
    crew.until(lambda: "greedy a" in crew.log())
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 128 + signal.SIGKILL
    crew.end()


HOLDS_THE_GIL = """
    @perdure.step
    def grab(name: str) -> None:
        import ctypes
        log(f"greedy {name}")
        ctypes.PyDLL(None).sleep(600)

    @perdure.agent
    def greedy(name: str) -> None:
        grab(name)
"""


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("1 / 0", 2, "ZeroDivisionError: division by zero (broken.py, line 3)"),
        ("os._exit(7)", 7, "ended while it loaded broken.py: exited with code 7"),
        ("os.kill(os.getpid(), 9)", 137, "ended while it loaded broken.py: killed by signal 9 (SIGKILL)"),
    ],
)
def test_code_that_cannot_be_loaded_ends_the_worker_with_its_code(
    tmp_path: Path, text: str, code: int, words: str
) -> None:
    place = Place(tmp_path)
    place.write("broken.py", f"open('loads', 'a').write('x'); {text}")
    result = place.perdure("worker", "broken.py", "--log", "lines")
    assert result.code == code, result
    assert words in result.err
    assert len(result.err.splitlines()) == 3
    assert (place.folder / "loads").read_text() == "x"


def test_worker_without_a_parent_ends_with_its_process(tmp_path: Path) -> None:
    crew = Crew(Place(tmp_path))
    crew.start("poison", name="a")
    worker = crew.worker("--in-process")
    assert worker.wait(PATIENCE) == -signal.SIGKILL
    assert crew.log() == ["poison a"]
    crew.end()


def test_health_is_answered_again_after_a_death(tmp_path: Path) -> None:
    crew = Crew(Place(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    worker = crew.worker("--health", str(port))
    crew.until(lambda: told(crew, "worker_started"))
    first = _healthy(port)
    os.kill(crew.hands(worker), signal.SIGKILL)
    crew.until(lambda: len(told(crew, "worker_started")) == 2)
    second = _healthy(port)
    assert (first["ok"], second["ok"]) == (True, True)
    assert first["worker_id"] != second["worker_id"]
    crew.end()


def _healthy(port: int) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as answer:
        return json.load(answer)


def test_json_counts_the_runs_and_deaths_of_every_process(tmp_path: Path) -> None:
    crew = Crew(Place(tmp_path))
    run = crew.start("poison", name="a")
    worker = crew.worker("--json")
    crew.until(lambda: any(each["run_id"] == run for each in told(crew, "run_refused")))
    worker.send_signal(signal.SIGTERM)
    assert worker.stdout is not None
    said = json.loads(worker.stdout.read())
    assert (said["runs"], said["deaths"], said["left"]) == (3, 3, [])
    assert worker.wait(PATIENCE) == 0
    crew.end()


def test_parent_leaves_no_process_of_its_own_behind(tmp_path: Path) -> None:
    crew = Crew(Place(tmp_path))
    run = crew.start("poison", name="a")
    worker = crew.worker()
    crew.until(lambda: any(each["run_id"] == run for each in told(crew, "run_refused")))
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
    left = subprocess.run(["pgrep", "-g", str(worker.pid)], capture_output=True, text=True, check=False)
    assert left.stdout == ""
    crew.end()


@on_a_server_too
def test_worker_that_has_nothing_to_do_gives_signs_of_life(crew: Crew) -> None:
    crew.place.environment |= {"PERDURE_RENEW_SECONDS": "0.2", "PERDURE_STALL_SECONDS": "3"}
    crew.worker()
    crew.until(lambda: told(crew, "worker_started"))
    (first,) = _workers(crew)
    crew.until(lambda: _workers(crew)[0]["beat_at"] > first["beat_at"] + 3)
    assert [each["alive"] for each in _workers(crew)] == [True]
