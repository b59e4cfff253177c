"""`perdure resume --all`: every run that can go on, several at once, and nothing repeated however often it dies."""

from __future__ import annotations

import contextlib
import hashlib
import re
import signal
import subprocess
from collections import Counter
from typing import Any

import apsw
import pytest

from perdure import clock
from tests.faces.moving import GATED, SLOW, name_of, runs_of
from tests.faces.waiting import ASKING

PERDURE = ("-P", "-m", "perdure")
ALL = ("resume", "--all", "--app", "work.py")
PATIENCE = 60.0

TWO_WAYS = """
    def die():
        if os.environ.get("KILL"):
            os.kill(os.getpid(), 9)

    @perdure.effect
    def send(to: str) -> None:
        die()

    @perdure.step
    def look() -> None:
        die()

    @perdure.agent
    def asks() -> str:
        look()
        return perdure.ask("Well?").value

    @perdure.agent
    def doubts() -> None:
        send("ada")

    if __name__ == "__main__":
        perdure.run({"ask": asks, "doubt": doubts}[sys.argv[1]], fresh=True)
"""


def states(place: Any) -> dict[str, str]:
    return {run["name"]: run["state"] for run in runs_of(place)}


def contents(place: Any) -> dict[str, str]:
    """What every table holds, as one digest each."""
    connection = apsw.Connection(str(place.database), flags=apsw.SQLITE_OPEN_READONLY)
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {}
    for name in names:
        rows = sorted(repr(row) for row in connection.execute(f"SELECT * FROM {name}"))  # noqa: S608 - its own tables
        found[name] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
    connection.close()
    return found


def on_disk(place: Any) -> dict[str, bytes]:
    """The bytes of the database, of what is written ahead of it, and of its mark."""
    names = ("", "-wal", "-mark")
    files = [place.database.with_name(place.database.name + suffix) for suffix in names]
    return {file.name: file.read_bytes() for file in files if file.exists()}


def left_behind(place: Any, script: str, *arguments: str, seconds: float) -> str:
    """A run of work.py that a process began and left, so long ago; its name."""
    place.write(
        "before.py",
        f"""
        from perdure import clock
        now = clock.wall_seconds
        clock.wall_seconds = lambda: now() - {seconds}
        from work import report
        perdure.run(report, int(sys.argv[1]))
        """,
    )
    assert place.python(script, *arguments, KILL="0").code == -signal.SIGKILL
    return name_of(place)


def test_queued_and_dead_runs_go_on_with_a_line_each_and_a_summary(agent: Any) -> None:
    agent.python("work.py", "3", KILL="1")
    dead = name_of(agent)
    agent.perdure("start", "work.py:report", "pages=2")
    queued = name_of(agent)
    result = agent.perdure(*ALL)
    assert (result.code, result.out) == (0, ""), result
    assert set(states(agent).values()) == {"completed"}
    saved = rf"✔ {dead:<18} completed, 4 steps  2 steps not repeated, saved \d+\.\d s"
    assert re.search(saved, result.err), result
    assert f"✔ {queued:<18} completed, 3 steps" in result.err
    assert "2 runs resumed: 2 completed\n  2 steps not repeated, saved" in result.err
    assert Counter(agent.lines("log.txt")) == {
        "fetch 0": 2, "fetch 1": 2, "fetch 2": 1, "send ada@example.com": 2,
    }  # fmt: skip
    assert "0 runs resumed: none could go on" in agent.perdure(*ALL).err


def test_several_runs_move_at_once_and_no_more_than_allowed(place: Any) -> None:
    """Each run waits until another is with it, which takes two threads; a third would be counted."""
    place.write(
        "work.py",
        """
        import threading

        arrived = []

        @perdure.step
        def meet(number: int) -> int:
            arrived.append(number)
            while len(arrived) < 2:
                time.sleep(0.01)
            return sum(thread.name.startswith("perdure-resume") for thread in threading.enumerate())

        @perdure.agent
        def work(number: int) -> int:
            return meet(number)
        """,
    )
    for number in range(6):
        place.perdure("start", "work.py:work", f"number={number}")
    assert place.perdure(*ALL, "--at-once", "2").code == 0
    assert {place.perdure("resume", run["name"]).out for run in runs_of(place)} == {"2\n"}


def test_waiting_run_goes_on_only_once_its_answer_has_come(place: Any) -> None:
    place.write("work.py", ASKING)
    place.python("work.py", "describe")
    name = name_of(place)
    before = place.perdure(*ALL)
    assert before.code == 0
    assert f"{name:<18} work.describe  not resumed: waits for an answer" in before.err
    assert f"next: perdure answer {name} <text>" in before.err
    assert place.perdure("answer", name, "Ada").code == 0
    assert place.perdure(*ALL).code == 0
    assert states(place) == {name: "completed"}


def test_settled_doubt_and_time_that_has_come_go_on(place: Any) -> None:
    place.write("work.py", ASKING)
    place.python("work.py", "late", PERDURE_QUIET="1")
    place.write("doubt.py", "from work import send\n@perdure.agent\ndef doubt() -> str:\n    return send('x')\n")
    place.write(
        "dies.py", "import work, doubt\nwork.log = lambda line: os.kill(os.getpid(), 9)\nperdure.run(doubt.doubt)\n"
    )
    place.python("dies.py")
    name = name_of(place)
    apps = ("--app", "work.py", "--app", "doubt.py")
    in_doubt = place.perdure("resume", "--all", *apps)
    assert in_doubt.code == 4, in_doubt
    assert place.perdure("resume", "--all", *apps).code == 0
    place.perdure("settle", name, "send", "--happened", '"sent"')
    assert place.perdure("resume", "--all", *apps).code == 0
    assert set(states(place).values()) == {"completed"}


def test_child_whose_answer_has_come_goes_on_with_its_parent(place: Any) -> None:
    place.write("work.py", ASKING)
    place.python("work.py", "parent")
    child = next(run for run in runs_of(place) if run["agent"] == "work.choose")
    assert place.perdure("answer", child["name"], "send").code == 0
    result = place.perdure(*ALL)
    assert result.code == 0, result
    assert "1 run resumed: 1 completed" in result.err
    assert set(states(place).values()) == {"completed"}
    assert place.lines("log.txt") == ["research", "send ada"]


def test_failed_runs_go_on_only_when_asked_for(place: Any) -> None:
    place.write("work.py", "@perdure.agent\ndef work() -> int:\n    return 1 if os.path.exists('mended') else 1 // 0\n")
    place.perdure("run", "work.py:work")
    (place.folder / "mended").touch()
    assert "failed; --failed attempts it anew" in place.perdure(*ALL).err
    assert list(states(place).values()) == ["failed"]
    assert place.perdure(*ALL, "--failed").code == 0
    assert list(states(place).values()) == ["completed"]


def test_old_runs_are_named_with_the_command_and_left_alone(agent: Any) -> None:
    old = left_behind(agent, "before.py", "2", seconds=2 * 24 * 3600)
    result = agent.perdure(*ALL)
    assert result.code == 0
    assert "untouched for 2 d, longer than 24 h" in result.err
    assert f"next: perdure resume {old} --app work.py" in result.err
    assert states(agent) == {old: "queued"}
    assert agent.perdure(*ALL, "--max-age", "3d").code == 0
    assert states(agent) == {old: "completed"}


def test_runs_of_other_agents_are_named_and_not_failed(agent: Any) -> None:
    agent.python("work.py", "2", KILL="0")
    name = name_of(agent)
    agent.write("other.py", "@perdure.agent\ndef other() -> int:\n    return 1\n")
    agent.perdure("start", "other.py:other")
    result = agent.perdure("resume", "--all", "--app", "other.py")
    assert result.code == 0, result
    assert "the code of its agent work.report was not named" in result.err
    assert f"next: perdure resume {name} --app work.py" in result.err
    assert states(agent)[name] == "queued"
    assert "next: perdure resume --all --app work.py\n" in agent.perdure("resume", "--all").err


@pytest.mark.parametrize("how", [["--app", "work.py"], ["--app", "work.py", "--json"]])
def test_dry_run_says_what_would_go_on_and_changes_nothing(agent: Any, how: list[str]) -> None:
    agent.python("work.py", "2", KILL="0")
    dead = name_of(agent)
    agent.python("work.py", "1", KILL="send")
    agent.perdure("resume", "--app", "work.py")
    doubtful = name_of(agent)
    tables, bytes_before = contents(agent), on_disk(agent)
    result = agent.perdure("resume", "--all", "--dry-run", *how)
    assert result.code == 0, result
    if "--json" in how:
        shown = result.json()
        assert [each["run"]["name"] for each in shown["would_resume"]] == [dead]
        assert [each["run"]["name"] for each in shown["left"]] == [doubtful]
    else:
        assert f"▸ {dead:<18} work.report  its process died" in result.out
        assert f"· {doubtful:<18} work.report  not resumed: " in result.out
        assert "send(to='ada@example.com') was started and never confirmed" in result.out
        assert f"next: perdure settle {doubtful} send <--happened [JSON] | --did-not-happen>" in result.out
        assert result.out.endswith("1 run would be resumed, 1 left alone; nothing was changed\n")
    assert agent.perdure("resume", dead, "--dry-run").code == 0
    assert (contents(agent), on_disk(agent)) == (tables, bytes_before)
    assert agent.lines("log.txt") == ["fetch 0", "fetch 0", "send ada@example.com"]


def test_dry_run_promises_no_run_whose_code_is_not_named(agent: Any) -> None:
    agent.python("work.py", "2", KILL="0")
    result = agent.perdure("resume", "--all", "--dry-run")
    assert "not resumed: the code of its agent work.report was not named\n" in result.out
    assert "\n0 runs would be resumed, 1 left alone; nothing was changed\n" in result.out
    assert result.out.endswith("  next: perdure resume --all --app work.py\n")


def test_run_that_stops_again_is_told_with_its_next_command_and_counted_by_how_it_stands(place: Any) -> None:
    place.write("work.py", TWO_WAYS)
    for how in ("ask", "doubt", "doubt"):
        place.python("work.py", how, KILL="1")
    names = {run["agent"]: run["name"] for run in place.runs()}
    result = place.perdure("resume", "--all", "--app", "work.py")
    assert result.code == 4, result
    assert f"    next: perdure answer {names['work.asks']} <text>\n" in result.err
    assert (
        f"    next: perdure settle {names['work.doubts']} send <--happened [JSON] | --did-not-happen>\n" in result.err
    )
    assert "3 runs resumed: 2 in doubt, 1 waiting\n" in result.err
    assert ".," not in result.err


def test_run_and_all_exclude_each_other(agent: Any) -> None:
    agent.python("work.py", "2", KILL="0")
    result = agent.perdure("resume", "-", "--all", "--app", "work.py")
    assert (result.code, result.err.splitlines()[-1]) == (2, "     do: perdure resume --all --app work.py")


def test_exit_code_is_that_of_the_worst_outcome(place: Any) -> None:
    place.write("work.py", ASKING + "\n    @perdure.agent\n    def fails() -> int:\n        return 1 // 0\n")
    place.perdure("start", "work.py:describe", "customer=ada")
    place.perdure("start", "work.py:late", "customer=ada")
    waiting = place.perdure(*ALL)
    assert waiting.code == 3, waiting
    assert "2 runs resumed: " in waiting.err
    assert "1 completed" in waiting.err
    place.perdure("start", "work.py:describe", "customer=bob")
    place.perdure("start", "work.py:fails")
    place.perdure("start", "work.py:describe", "customer=eve")
    result = place.perdure(*ALL, "--json")
    assert result.code == 1, result
    shown = result.json()
    assert shown["exit_code"] == 1
    assert sorted(each["exit_code"] for each in shown["resumed"]) == [1, 3, 3]
    assert {each["run"]["state"] for each in shown["resumed"]} == {"waiting", "failed"}


def test_damaged_run_is_named_with_its_repair_and_the_others_go_on(agent: Any) -> None:
    agent.python("work.py", "3", KILL="1")
    damaged = name_of(agent)
    connection = apsw.Connection(str(agent.database))
    connection.execute("UPDATE records SET at = at + 1 WHERE seq = 2")
    connection.close()
    agent.perdure("start", "work.py:report", "pages=1")
    whole = name_of(agent)
    result = agent.perdure(*ALL)
    assert result.code == 0, result
    assert "record 2 is damaged" in result.err
    assert f"next: perdure repair {damaged}" in result.err
    assert states(agent)[whole] == "completed"


def test_run_that_another_process_holds_is_left_to_it(place: Any) -> None:
    place.write("work.py", SLOW)
    process = place.start("work.py")
    result = place.perdure(*ALL)
    assert (result.code, f"running, held by pid {process.pid}" in result.err) == (0, True)


def test_killed_with_several_runs_moving_nothing_is_repeated(place: Any) -> None:
    place.write("work.py", GATED)
    for number in range(3):
        place.perdure("start", "work.py:deliver", f"number={number}")
    for _ in range(2):
        process = place.start(*PERDURE, *ALL, until="at the gate")
        for line in process.stdout:
            if line.startswith("at the gate"):
                break
        process.kill()
        process.communicate(timeout=30)
    (place.folder / "open").touch()
    result = place.perdure(*ALL)
    assert result.code == 0, result
    assert set(states(place).values()) == {"completed"}
    assert Counter(place.lines("log.txt")) == {f"send {run} {to}": 1 for run in range(3) for to in (1, 2, 3)}


def test_two_at_the_same_time_share_the_runs_and_repeat_none(place: Any) -> None:
    place.write("work.py", GATED)
    for number in range(4):
        place.perdure("start", "work.py:deliver", f"number={number}")
    one = place.start(*PERDURE, *ALL, "--at-once", "2", until="at the gate")
    other = place.start(*PERDURE, *ALL, "--at-once", "2", until="at the gate")
    (place.folder / "open").touch()
    for process in (one, other):
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert set(states(place).values()) == {"completed"}
    assert Counter(place.lines("log.txt")) == {f"send {run} {to}": 1 for run in range(4) for to in (1, 2, 3)}


def test_control_c_stops_all_of_them_resumably(place: Any) -> None:
    place.write("work.py", GATED)
    for number in range(3):
        place.perdure("start", "work.py:deliver", f"number={number}")
    process = place.start(*PERDURE, *ALL, "--at-once", "2", until="at the gate")
    process.send_signal(signal.SIGINT)
    for line in process.stderr:
        if "stopping" in line:
            break
    (place.folder / "open").touch()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Interrupted: 0 of 3 runs completed." in err
    assert set(states(place).values()) == {"queued"}
    assert not [line for line in place.lines("log.txt") if line.endswith("3")]
    assert place.perdure(*ALL).code == 0
    assert Counter(place.lines("log.txt")) == {f"send {run} {to}": 1 for run in range(3) for to in (1, 2, 3)}


def test_control_c_again_leaves_at_once_and_the_runs_are_resumed_like_those_of_a_dead_process(place: Any) -> None:
    place.write("work.py", GATED)
    place.perdure("start", "work.py:deliver", "number=1")
    process = place.start(*PERDURE, *ALL, until="at the gate")
    process.send_signal(signal.SIGINT)
    for line in process.stderr:
        if "stopping" in line:
            break
    asked_again = clock.elapsed_seconds()
    while process.poll() is None and clock.elapsed_seconds() - asked_again < PATIENCE:
        process.send_signal(signal.SIGINT)  # one that follows too closely is the same request
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    process.communicate()
    assert process.returncode == 130
    (place.folder / "open").touch()
    assert place.perdure(*ALL).code == 0
    assert place.lines("log.txt") == ["send 1 1", "send 1 2", "send 1 3"]


@pytest.mark.parametrize(
    "words",
    [["--all", "-"], ["--all", "--accept"], ["--failed"], ["--max-age", "1h"], ["--all", "--max-age", "soon"]],
)
def test_options_that_do_not_go_together_are_refused(agent: Any, words: list[str]) -> None:
    agent.python("work.py", "2", KILL="0")
    result = agent.perdure("resume", *words, "--app", "work.py")
    assert result.code == 2, result
    assert list(states(agent).values()) == ["queued"]
