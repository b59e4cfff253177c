"""A plain script with `perdure.run`: the few lines it shows, and how it ends."""

from __future__ import annotations

import re
import signal
from typing import Any

import apsw
import pytest


def test_first_run_says_where_state_is_kept_and_the_second_nothing(agent: Any) -> None:
    first = agent.python("work.py", "1")
    assert (first.code, first.out) == (0, "result: sent to ada@example.com\n")
    assert first.err == "perdure: state is kept in ./.perdure/perdure.db\n"
    assert agent.python("work.py", "2").err == ""


def test_resume_is_one_line(agent: Any) -> None:
    agent.python("work.py", "3", KILL="1")
    result = agent.python("work.py", "3")
    told = r"perdure: resumed \S+ at step 3: 2 steps not repeated, saved \d+\.\d s"
    expected = told + r" \(its process died \(pid \d+ on \S+\)\)\n"
    assert re.fullmatch(expected, result.err), result


def test_settled_doubt_is_one_line(agent: Any) -> None:
    agent.python("work.py", "1", KILL="send")
    agent.perdure("settle", "-", "send", "--happened", '"x"')
    lines = agent.python("work.py", "1").err.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"perdure: send was in doubt; by \S+@\S+: it happened, so it is not done again", lines[1])


def test_quiet_is_quiet(agent: Any) -> None:
    assert agent.python("work.py", "3", KILL="1", PERDURE_QUIET="1").err == ""
    assert agent.python("work.py", "3", PERDURE_QUIET="1").err == ""


def test_old_unfinished_run_is_named_with_the_ways_to_resume_it(agent: Any) -> None:
    """The clock of the second process is two days ahead."""
    agent.python("work.py", "3", KILL="1")
    run = agent.runs()[0]
    agent.write(
        "later.py",
        """
        from perdure import clock
        now = clock.wall_seconds
        clock.wall_seconds = lambda: now() + 2 * 24 * 3600
        from work import report
        perdure.run(report, 3)
        """,
    )
    result = agent.python("later.py")
    how = f'perdure resume {run["name"]} --app later.py, or run_id="{run["run_id"]}"'
    assert result.err == f"perdure: left {run['name']} alone, unfinished for 2 d; to resume it: {how}\n"


def test_a_process_shows_at_most_eight_lines(agent: Any) -> None:
    agent.write(
        "many.py",
        """
        from work import report
        for number in range(20):
            if os.fork() == 0:
                os.environ["KILL"] = "0"
                perdure.run(report, number + 2)
            os.wait()
        for number in range(20):
            perdure.run(report, number + 2)
        """,
    )
    lines = agent.python("many.py").err.splitlines()
    from_the_parent = [line for line in lines if "state is kept" not in line]
    assert len(from_the_parent) == 8
    assert from_the_parent[-1] == "perdure: further lines are left out; perdure ls lists the runs"


def test_closed_standard_error_does_not_disturb_the_run(agent: Any) -> None:
    agent.write("closed.py", "sys.stderr.close()\nfrom work import report\nprint(perdure.run(report, 1))")
    result = agent.python("closed.py")
    assert (result.code, result.out) == (0, "sent to ada@example.com\n")


def test_agents_own_exception_is_pythons_traceback_and_1(place: Any) -> None:
    place.write("work.py", "@perdure.agent\ndef work() -> None:\n    raise KeyError('mine')\nperdure.run(work)")
    result = place.python("work.py")
    assert result.code == 1, result
    assert "Traceback (most recent call last)" in result.err
    assert result.err.endswith("KeyError: 'mine'\n")


def three_lines(result: Any, code: int) -> str:
    assert result.code == code, result
    assert "Traceback" not in result.err
    lines = [line for line in result.err.splitlines() if not re.match("perdure: (resumed|state is kept)", line)]
    assert [line[:9] for line in lines if line[:4] != "  re"][-2:] == ["   safe: ", "     do: "], result
    assert lines[0].startswith("perdure: ")
    return "\n".join(lines)


def test_uncaught_doubt_prints_three_lines_and_ends_with_4(agent: Any) -> None:
    assert agent.python("work.py", "1", KILL="send").code == -signal.SIGKILL
    said = three_lines(agent.python("work.py", "1"), 4)
    assert "send(to='ada@example.com') was started and never confirmed" in said


def test_uncaught_divergence_prints_three_lines_and_ends_with_5(agent: Any) -> None:
    agent.python("work.py", "3", KILL="1")
    path = agent.folder / "work.py"
    path.write_text(path.read_text().replace("fetch(page)\n", "fetch(page + 1)\n"))
    result = agent.python("work.py", "3")
    assert result.code == 5, result
    assert "no longer matches its code" in result.err
    assert "Traceback" not in result.err
    assert agent.runs()[0]["reason"] == "parked"


def test_uncaught_damage_prints_three_lines_and_ends_with_6(agent: Any) -> None:
    agent.python("work.py", "3", KILL="1")
    connection = apsw.Connection(str(agent.database))
    connection.execute("UPDATE records SET at = at + 1 WHERE seq = 2")
    connection.close()
    assert "record 2 is damaged" in three_lines(agent.python("work.py", "3"), 6)


def test_store_that_cannot_be_opened_prints_three_lines_and_ends_with_6(agent: Any) -> None:
    (agent.folder / "folder").mkdir()
    assert "is a directory" in three_lines(agent.python("work.py", "1", PERDURE_STORE="folder"), 6)


@pytest.mark.parametrize("environment", [{"PERDURE_STROE": "x"}, {"PERDURE_DELIVERIES": "many"}])
def test_setting_that_cannot_be_used_prints_three_lines_and_ends_with_2(
    agent: Any, environment: dict[str, str]
) -> None:
    three_lines(agent.python("work.py", "1", **environment), 2)
    three_lines(agent.perdure("show", **environment), 2)


def test_cancelled_run_ends_without_a_traceback(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.step
        def one() -> int:
            return 1

        @perdure.agent
        def work() -> int:
            from perdure.engine.session import session
            from perdure.records import Mail
            opened = session()
            opened.store.post(Mail(0, handle_id, "cancel", "", "{}", "a test", time.time()))
            opened.deliver_mail()
            return one()

        handle_id = "the-run"
        perdure.run(work, run_id=handle_id)
        """,
    )
    result = place.python("work.py")
    assert result.code == 1, result
    assert "was cancelled" in result.err
    assert "Traceback" not in result.err


def test_started_run_that_waits_for_a_person_says_so_and_goes_on_by_itself(place: Any) -> None:
    place.write(
        "asks.py",
        """
        @perdure.agent
        def asks() -> str:
            return perdure.ask("Ship it?", options=["now", "later"]).choice

        if __name__ == "__main__":
            print("ready", flush=True)
            print("result:", perdure.start(asks).result())
        """,
    )
    process = place.start("asks.py")
    assert process.stderr.readline() == "perdure: state is kept in ./.perdure/perdure.db\n"
    line = process.stderr.readline()
    name = place.name()
    how = f"perdure answer {name} <now|later>"
    assert line == f"perdure: Run {name} waits for an answer: Ship it?; it goes on after: {how}\n"
    assert place.perdure("answer", name, "later").code == 0
    assert process.communicate(timeout=60)[0] == "result: later\n"
