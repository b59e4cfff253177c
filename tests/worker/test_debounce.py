"""Debounced starts from real processes: what comes close together is one run, with the newest arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faces.conftest import Place
from tests.worker.conftest import PATIENCE, Crew, on_a_server_too

APP = """
    import fcntl

    def log(line):
        with open("log.txt", "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line + "\\n")

    @perdure.agent
    def index(page: str, number: int) -> str:
        log(f"index {page} {number}")
        return f"{page} as of {number}"
"""
STARTER = """
    from app import index, log

    me = int(sys.argv[1])
    handles = []
    for turn in range(12):
        number = 100 * me + turn
        log(f"begin {number}")
        handle = perdure.start(index, "home", number, debounce="0.3s", debounce_key="home", at_most="1s")
        log(f"accepted {number} {handle.run_id}")
        handles.append((number, handle))
    for number, handle in handles:
        log(f"result {number} {handle.result().rpartition(' ')[2]}")
"""
STREAM = """
    from app import index

    number = 0
    while not os.path.exists("log.txt"):
        number += 1
        handle = perdure.start(index, "home", number, debounce="2s", at_most="2s")
    print(number)
"""


@pytest.fixture
def indexing(crew: Crew) -> Crew:
    crew.place.write("app.py", APP)
    return crew


@on_a_server_too
def test_every_caller_gets_the_one_run_and_it_has_the_newest_arguments(indexing: Crew) -> None:
    indexing.place.write("starter.py", STARTER)
    for _ in range(2):
        indexing.worker("--in-process")
    starters = [indexing.script("starter.py", str(number)) for number in range(1, 4)]
    assert [process.wait(PATIENCE) for process in starters] == [0, 0, 0]
    lines = [line.split() for line in indexing.log()]
    executed = [int(line[2]) for line in lines if line[0] == "index"]
    begun = {int(line[1]): place for place, line in enumerate(lines) if line[0] == "begin"}
    accepted = {int(line[1]): (place, line[2]) for place, line in enumerate(lines) if line[0] == "accepted"}
    results = {int(line[1]): int(line[2]) for line in lines if line[0] == "result"}
    assert len(begun) == len(accepted) == len(results) == 36
    assert len(executed) == len(set(executed)) == len({run_id for _, run_id in accepted.values()}) < 36
    for number, newest in results.items():
        assert accepted[number][1] == accepted[newest][1]
        assert not accepted[newest][0] < begun[number], f"start {number} came after {newest}, and was lost"


def test_run_begins_at_the_latest_after_at_most_however_many_starts_come(indexing: Crew) -> None:
    indexing.place.write("stream.py", STREAM)
    indexing.worker("--in-process")
    stream = indexing.script("stream.py")
    assert stream.wait(PATIENCE) == 0
    (first, *_) = indexing.log()
    assert first.startswith("index home ")


def test_typed_starts_are_one_run_until_it_is_taken(indexing: Crew) -> None:
    runs = [typed(indexing, number) for number in (1, 2)]
    assert runs[0] == runs[1]
    assert typed(indexing, 3, "--debounce-key", "other") != runs[0]
    assert indexing.place.perdure("resume", runs[0], "--app", "app.py").code == 0
    assert indexing.log() == ["index home 2"]
    later = typed(indexing, 4)
    assert later != runs[0]
    assert typed(indexing, 5) == later


def typed(crew: Crew, number: int, *options: str) -> str:
    words = ("start", "app.py:index", "page=home", f"number={number}", "--debounce", "1h", *options, "--json")
    result = crew.place.perdure(*words)
    assert result.code == 0, result
    assert result.json()["state"] == "queued"
    return str(result.json()["run_id"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--debounce", "soon"], "--debounce"),
        (["--debounce", "0s"], "cannot wait for nothing"),
        (["--debounce", "5m", "--at-most", "1m"], "nor longer than it may"),
        (["--debounce-key", "x"], "which is not given"),
        (["--at-most", "5m"], "which is not given"),
        (["--debounce", "1m", "--id", "mine"], "run_id and debounce do not go together"),
        (["--debounce", "1m", "--delay", "1m"], "delay and debounce do not go together"),
        (["--debounce", "1m", "--debounce-key", "a\tb"], "is not usable"),
    ],
)
def test_unusable_debounce_is_refused_with_three_lines(tmp_path: Path, options: list[str], words: str) -> None:
    place = Place(tmp_path)
    place.write("app.py", APP)
    result = place.perdure("start", "app.py:index", "page=home", "number=1", *options)
    assert result.code == 2, result
    assert words in result.err
    assert "   safe: nothing was " in result.err
    assert "     do: " in result.err


def test_debounce_inside_a_run_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("app.py", APP)
    place.write(
        "inside.py",
        """
        from app import index

        @perdure.agent
        def outer() -> None:
            perdure.start(index, "home", 1, debounce="1s")

        perdure.run(outer)
        """,
    )
    result = place.python("inside.py")
    assert result.code != 0
    assert "was called inside a run" in result.err
