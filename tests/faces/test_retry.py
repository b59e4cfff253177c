"""`perdure retry`: what failed or is parked is attempted anew; everything else is told its own next command."""

from __future__ import annotations

import re
import signal
from typing import Any

from tests.faces.moving import SLOW, name_of, runs_of
from tests.faces.waiting import ASKING

FAILING = """
    def log(line):
        with open("log.txt", "a") as file:
            file.write(line + "\\n")

    @perdure.step
    def first() -> int:
        log("first")
        perdure.current().spent(dollars=0.25)
        return 1

    @perdure.step
    def second() -> int:
        log("second")
        if not os.path.exists("mended"):
            raise ValueError("the sky fell")
        return 2

    @perdure.agent
    def work() -> int:
        return first() + second()

    if __name__ == "__main__":
        perdure.run(work)
"""


def refused(result: Any, said: str, hint: str) -> None:
    assert result.code == 2, result
    happened, safe, do = result.err.splitlines()
    assert said in happened
    assert safe == "   safe: nothing was started."
    assert do == f"     do: {hint}"


def test_failed_call_is_attempted_anew_and_completed_steps_stand(place: Any) -> None:
    place.write("work.py", FAILING)
    place.python("work.py")
    name = name_of(place)
    still = place.perdure("retry", name, "--app", "work.py")
    assert still.code == 1, still
    assert f"perdure retry {name} --app work.py" in still.err
    (place.folder / "mended").touch()
    result = place.perdure("retry", name, "--app", "work.py")
    assert (result.code, result.out) == (0, "3\n"), result
    assert re.match(rf"{name}  failed \d+ s ago at step 2: ValueError: the sky fell\n", result.err), result
    assert re.search(r"1 step not repeated, saved \d+\.\d s and \$0\.2500", result.err), result
    assert place.lines("log.txt") == ["first", "second", "second", "second"]


def test_run_parked_for_its_deliveries_is_forgiven(agent: Any) -> None:
    for _ in range(4):
        agent.python("work.py", "1", KILL="0")
    agent.perdure("resume", "--app", "work.py")
    assert runs_of(agent)[0]["reason"] == "parked"
    result = agent.perdure("retry", "-", "--app", "work.py", "--json")
    assert result.code == 0, result
    shown = result.json()
    assert (shown["run"]["state"], shown["result"]) == ("completed", "sent to ada@example.com")
    assert shown["saved"]["steps"] == 1


def test_completed_and_cancelled_runs_are_forked_instead(agent: Any) -> None:
    agent.python("work.py", "1")
    name = name_of(agent)
    result = agent.perdure("retry", name, "--app", "work.py")
    refused(result, f"Run {name} is completed; a fork ", f"perdure fork {name} --at 0")
    agent.python("work.py", "2", KILL="0")
    name = name_of(agent)
    agent.perdure("cancel", name, "--yes")
    refused(agent.perdure("retry", name, "--app", "work.py"), f"Run {name} is cancelled.", f"perdure fork {name}")


def test_running_run_is_left_to_its_holder(place: Any) -> None:
    place.write("work.py", SLOW)
    process = place.start("work.py")
    name = name_of(place)
    said = f"Run {name} is running, held by pid {process.pid} on "
    refused(place.perdure("retry", name, "--app", "work.py"), said, f"perdure show {name}")


def test_waiting_run_is_told_its_own_next_command(place: Any) -> None:
    place.write("work.py", ASKING)
    place.python("work.py", "describe")
    name = name_of(place)
    result = place.perdure("retry", name, "--app", "work.py")
    refused(result, "did not fail (waits for an answer: What is their name?)", f"perdure answer {name} <text>")
    assert runs_of(place)[0]["state"] == "waiting"


def test_run_in_doubt_and_run_that_died_are_told_theirs(agent: Any) -> None:
    assert agent.python("work.py", "1", KILL="send").code == -signal.SIGKILL
    name = name_of(agent)
    refused(agent.perdure("retry", name), "is queued, and did not fail", f"perdure resume {name} --app work.py")
    agent.perdure("resume", "--app", "work.py")
    settle = f"perdure settle {name} send <--happened [JSON] | --did-not-happen>"
    refused(agent.perdure("retry", name, "--app", "work.py"), "in doubt", settle)
    assert agent.lines("log.txt").count("send ada@example.com") == 1


def test_paused_run_is_told_to_be_unpaused(agent: Any) -> None:
    agent.python("work.py", "2", KILL="0")
    name = name_of(agent)
    agent.perdure("pause", name)
    agent.perdure("resume", "--app", "work.py")
    refused(agent.perdure("retry", name, "--app", "work.py"), "paused by", f"perdure unpause {name}")


def test_unknown_run_and_missing_code_start_nothing(place: Any) -> None:
    place.write("work.py", FAILING)
    place.python("work.py")
    assert place.perdure("retry", "nobody").code == 2
    result = place.perdure("retry", name_of(place))
    assert (result.code, "Its code is not known here." in result.err) == (2, True)
    assert place.lines("log.txt") == ["first", "second"]
