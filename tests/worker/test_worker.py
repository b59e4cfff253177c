"""Workers: what is accepted is executed, what a dead one leaves goes on elsewhere, and one that is asked drains."""

from __future__ import annotations

import collections
import signal
import socket
import struct
import urllib.error
import urllib.request
from datetime import datetime
from typing import Any

import pytest

from perdure import clock
from tests.faces.conftest import Place
from tests.worker.conftest import PATIENCE, Crew, on_a_server_too


@on_a_server_too
def test_accepted_runs_are_executed_sync_and_async_side_by_side(crew: Crew) -> None:
    runs = {crew.start("job", name="a", steps=3), crew.start("soft", name="b")}
    crew.worker()
    crew.until(lambda: runs <= set(crew.ended()))
    assert crew.log().count("send a") == 1
    assert crew.log().count("end b 4") == 1


@on_a_server_too
def test_run_that_a_killed_worker_left_goes_on_elsewhere_without_repeating_a_step(crew: Crew) -> None:
    run = crew.start("lingering", name="a")
    first = crew.worker()
    crew.until(lambda: "holding a" in crew.log())
    crew.kill(first)
    crew.let_go("a")
    crew.worker()
    crew.until(lambda: run in crew.ended())
    counts = collections.Counter(crew.log())
    assert (counts["end a 0"], counts["end a 1"], counts["send a"]) == (1, 1, 1)
    assert counts["holding a"] == 2
    taken = [each for each in crew.told if each["event"] == "run_taken" and each["run_id"] == run]
    assert [each["delivery"] for each in taken] == [1, 1]


@on_a_server_too
def test_many_workers_execute_each_run_once_while_they_are_killed(crew: Crew) -> None:
    """Kills come thick and fast here: a run that was three times unlucky must not be taken for one that kills."""
    crew.place.environment["PERDURE_DELIVERIES"] = "50"
    runs = {crew.start("job", name=f"n{number}", steps=12) for number in range(8)}
    kills = 0
    workers = [crew.worker("--concurrency", "3") for _ in range(3)]
    while kills < 4:
        progress = len(crew.log())
        crew.until(lambda progress=progress: len(crew.log()) > progress + 20 or not crew.unsettled())
        if not crew.unsettled():
            break
        crew.kill(workers.pop(0))
        kills += 1
        workers.append(crew.worker("--concurrency", "3"))
    crew.until(lambda: not crew.unsettled())
    states = crew.states()
    in_doubt = [run for run, state in states.items() if state == ("waiting", "in_doubt")]
    odd = [run for run, state in states.items() if run not in in_doubt and state != ("completed", "")]
    assert not odd, [crew.place.perdure("show", run).out for run in odd]
    counts = collections.Counter(line for line in crew.log() if line.startswith("send"))
    assert max(counts.values()) == 1
    assert set(states) == runs
    assert len(counts) >= len(runs) - len(in_doubt)
    assert kills >= 1


def test_agent_that_a_worker_does_not_know_is_left_for_one_that_does(crew: Crew) -> None:
    crew.place.write("other.py", "@perdure.agent\ndef unrelated() -> int:\n    return 1\n")
    run = crew.start("job", name="a", steps=1)
    stranger = crew.worker(app="other.py")
    crew.until(lambda: any(each["event"] == "worker_started" for each in crew.told))
    crew.worker()
    crew.until(lambda: run in crew.ended())
    assert [each["pid"] for each in crew.told if each["event"] == "run_taken"] == [crew.processes[1].pid]
    assert stranger.poll() is None


def test_drained_worker_finishes_its_step_and_others_go_on_after_it(crew: Crew) -> None:
    run = crew.start("lingering", name="a")
    first = crew.worker("--grace", "60")
    crew.until(lambda: "holding a" in crew.log())
    first.send_signal(signal.SIGTERM)
    crew.until(lambda: any(each["event"] == "worker_draining" for each in crew.told))
    crew.let_go("a")
    assert first.wait(PATIENCE) == 0
    assert "end a 1" not in crew.log()
    crew.worker()
    crew.until(lambda: run in crew.ended())
    assert crew.log().count("holding a") == 1
    assert crew.log().count("send a") == 1


def test_step_that_outlasts_the_grace_is_left_to_others(crew: Crew) -> None:
    run = crew.start("lingering", name="a")
    first = crew.worker("--grace", "2")
    crew.until(lambda: "holding a" in crew.log())
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == 0
    crew.let_go("a")
    crew.worker()
    crew.until(lambda: run in crew.ended())
    counts = collections.Counter(crew.log())
    assert (counts["holding a"], counts["end a 0"], counts["send a"]) == (2, 1, 1)


@on_a_server_too
def test_worker_that_is_asked_from_elsewhere_drains(crew: Crew) -> None:
    first = crew.worker()
    crew.until(lambda: any(each["event"] == "worker_started" for each in crew.told))
    (listed,) = crew.place.perdure("workers", "--json").json()["workers"]
    assert listed["pid"] == crew.hands(first)
    assert (listed["alive"], listed["draining"]) == (True, False)
    assert crew.place.perdure("drain", listed["worker_id"][:6]).code == 0
    assert first.wait(PATIENCE) == 0


def test_run_that_kills_its_workers_is_parked_and_others_are_not_held_up(crew: Crew) -> None:
    poison = crew.start("poison", name="p")
    good = crew.start("soft", name="g")  # it has no effect that a kill could leave in doubt
    deaths = 0
    while crew.states()[poison] != ("waiting", "parked"):
        process = crew.worker("--in-process")
        crew.until(lambda process=process: process.poll() is not None or crew.states()[poison][1] == "parked")
        deaths += process.poll() == -signal.SIGKILL
        assert deaths <= 3
    assert deaths == 3
    assert crew.log().count("poison p") == 3
    crew.until(lambda: crew.states()[good][0] == "completed")


@on_a_server_too
def test_answered_run_goes_on_by_itself(crew: Crew) -> None:
    run = crew.start("asks", name="a")
    crew.worker()
    crew.until(lambda: crew.ended("waiting") == [run])
    assert crew.place.perdure("answer", run, "on").code == 0
    crew.until(lambda: run in crew.ended())
    assert crew.log() == ["send a on"]


def test_time_since_a_run_could_go_on_counts_from_its_answer(crew: Crew) -> None:
    run = crew.start("asks", name="a")
    crew.worker()
    crew.until(lambda: crew.ended("waiting") == [run])
    assert crew.states()[run] == ("waiting", "human")
    answered_after = clock.wall_seconds()
    assert crew.place.perdure("answer", run, "on").code == 0
    crew.until(lambda: run in crew.ended())
    _, taken = [each for each in crew.told if each["event"] == "run_taken"]
    could_go_on_at = datetime.fromisoformat(taken["at"]).timestamp() - taken["after_seconds"]
    assert could_go_on_at > answered_after - 0.05  # what is told is rounded, and a store has a clock of its own


def test_health_is_answered_while_it_works_and_not_while_it_drains(crew: Crew) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    crew.start("lingering", name="a")
    first = crew.worker("--health", str(port), "--grace", "60")
    crew.until(lambda: "holding a" in crew.log())
    for asked in (b"GET / HT", b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as rude:
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # hangs up at once
            rude.sendall(asked)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as answer:
        assert answer.status == 200
    assert not [each for each in crew.told if "Traceback" in each["event"]]
    first.send_signal(signal.SIGTERM)
    crew.until(lambda: _is_unwell(port))
    crew.let_go("a")
    assert first.wait(PATIENCE) == 0


def _is_unwell(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE).close()
    except urllib.error.HTTPError as error:
        return error.code == 503
    return False


@pytest.mark.parametrize(
    ("arguments", "words", "hint"),
    [
        (["nowhere.py"], "does not exist", "name a Python file"),
        (["apq.py"], "does not exist", "did you mean app.py? "),
        (["ap"], "is neither a file nor a module here", "did you mean app.py? "),
        (["app.py:job"], "names an agent where a file", "perdure worker app.py, without :job"),
        (["app:job"], "names an agent where a file", "perdure worker app, without :job"),
        (["empty.py"], "has no agent", "@perdure.agent"),
        (["app.py", "--health", "x"], "names no port", "--health 8080"),
        (["app.py", "--health"], "--health needs a value", "perdure worker --help"),
        (["app.py", "--concurrency", "0"], "concurrency", "perdure worker --help"),
    ],
)
def test_unusable_worker_is_refused_with_three_lines(
    tmp_path: Any, arguments: list[str], words: str, hint: str
) -> None:
    place = Place(tmp_path)
    Crew(place)
    place.write("empty.py", "")
    result = place.perdure("worker", *arguments)
    assert result.code == 2, result
    assert words in result.err
    assert "   safe: " in result.err
    assert hint in result.err.partition("     do: ")[2]
