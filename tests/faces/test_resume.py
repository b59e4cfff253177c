"""`perdure resume`: which run, whose code, what is shown, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.faces.moving import SLOW, name_of, on_terminal, read_until, runs_of


def killed(place: Any, where: str, pages: str = "3") -> str:
    """A run of work.py that was killed there; its name."""
    assert place.python("work.py", pages, KILL=where).code == -signal.SIGKILL
    return str(name_of(place))


def test_nothing_to_resume_is_no_error(agent: Any) -> None:
    agent.python("work.py", "1")
    result = agent.perdure("resume")
    assert (result.code, result.out) == (0, "Nothing to resume in ./.perdure/perdure.db.\n")


def test_users_run_without_its_code_says_how_to_resume_it(agent: Any) -> None:
    name = killed(agent, "1")
    result = agent.perdure("resume")
    assert result.code == 2, result
    happened, safe, do = result.err.splitlines()
    assert re.match(rf"perdure: Run {name} \(work.report\) stopped \d+ s ago at step 3: its process died", happened)
    assert safe == "   safe: its 2 completed steps are saved; nothing was started."
    assert do == f"     do: start its script again: it resumes; or perdure resume {name} --app work.py"


def test_script_started_again_resumes_as_the_hint_says(agent: Any) -> None:
    killed(agent, "1")
    assert agent.python("work.py", "3").out == "result: sent to ada@example.com\n"
    assert agent.lines("log.txt") == ["fetch 0", "fetch 1", "fetch 2", "send ada@example.com"]


@pytest.mark.parametrize("app", ["work.py", "work", "./work.py"])
def test_named_code_resumes_without_repeating_a_step(agent: Any, app: str) -> None:
    name = killed(agent, "1")
    result = agent.perdure("resume", name, "--app", app)
    assert result.code == 0, result
    assert agent.lines("log.txt") == ["fetch 0", "fetch 1", "fetch 2", "send ada@example.com"]
    assert re.search(r"stopped \d+ s ago at step 3: its process died \(pid \d+ on \S+\)", result.err), result
    assert re.search(r"  2 steps not repeated, saved \d+\.\d s\n", result.err), result
    assert re.search(r"✔  3 fetch +step", result.err), result
    assert result.out == '"sent to ada@example.com"\n'


def test_code_is_never_loaded_because_a_record_names_it(agent: Any) -> None:
    killed(agent, "1")
    agent.write("work.py", "open('loaded', 'w').close()")
    unnamed = (["resume"], ["resume", "-"], ["resume", "--all"], ["resume", "--all", "--dry-run"], ["retry", "-"])
    for command in (*unnamed, ["show"], ["show", "-"], ["verify"], ["repair", "--all", "--yes"]):
        agent.perdure(*command)
    assert not (agent.folder / "loaded").exists()
    agent.perdure("resume", "--app", "work.py")
    assert (agent.folder / "loaded").exists()


def test_script_that_runs_when_loaded_is_refused_before_it_starts_anything(agent: Any) -> None:
    killed(agent, "1")
    agent.write("bare.py", "from work import report\nprint(perdure.run(report, 3))\n")
    result = agent.perdure("resume", "--app", "bare.py")
    assert result.code == 2, result
    assert "bare.py starts a run as soon as it is loaded." in result.err
    assert len(runs_of(agent)) == 1
    assert agent.lines("log.txt") == ["fetch 0", "fetch 1"]


def test_code_that_cannot_be_used_is_named(agent: Any) -> None:
    killed(agent, "1")
    agent.write("broken.py", "\n1 / 0\n")
    agent.write("empty.py", "")
    agent.write("exits.py", "sys.exit(3)")
    for app, said in (
        ("missing.py", "--app missing.py does not exist."),
        ("no.such.module", "no.such.module is neither a file nor a module here"),
        (".", "--app . is a directory."),
        ("broken.py", "cannot be loaded: ZeroDivisionError: division by zero (broken.py, line 4)"),
        ("empty.py", "empty.py has no agent work.report; its agents are: none."),
        ("exits.py", "cannot be loaded: SystemExit: 3"),
    ):
        result = agent.perdure("resume", "--app", app)
        assert result.code == 2, result
        assert said in result.err
        assert "Traceback" not in result.err


def test_effect_in_doubt_ends_with_4_and_the_command_that_settles_it(agent: Any) -> None:
    name = killed(agent, "send")
    result = agent.perdure("resume", "--app", "work.py")
    assert result.code == 4, result
    assert "4 send               IN DOUBT: started, never confirmed" in result.err
    assert f"perdure settle {name} send <--happened [JSON] | --did-not-happen>" in result.err
    assert agent.lines("log.txt").count("send ada@example.com") == 1


def test_agents_own_failure_ends_with_1_shows_its_traceback_and_can_be_resumed(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.step
        def first() -> int:
            with open("log.txt", "a") as file:
                print("first", file=file)
            return 1

        @perdure.agent
        def work() -> int:
            first()
            if not os.path.exists("mended"):
                os.path.exists("killed") or (open("killed", "w").close(), os.kill(os.getpid(), 9))
                raise ValueError("the sky fell")
            return 2

        if __name__ == "__main__":
            perdure.run(work)
        """,
    )
    place.python("work.py")
    result = place.perdure("resume", "--app", "work.py")
    assert result.code == 1, result
    trace, _, ours = result.err.partition("perdure: ")
    assert 'work.py", line' in trace
    assert trace.rstrip().endswith("ValueError: the sky fell")
    assert "src/perdure" not in trace
    assert f"perdure resume {name_of(place)} --app work.py" in ours
    run = runs_of(place)[0]
    assert (run["state"], run["cause"]) == ("failed", "ValueError: the sky fell")
    (place.folder / "mended").touch()
    result = place.perdure("resume", "--app", "work.py")
    assert result.code == 0, result
    assert "failed" in result.err.splitlines()[0]
    assert place.lines("log.txt") == ["first"]


def test_run_that_keeps_ending_its_workers_is_parked_until_it_is_named(agent: Any) -> None:
    """The fourth delivery without a completed step is refused; a person who names the run is obeyed."""
    name = killed(agent, "0", "1")
    for _ in range(3):
        agent.python("work.py", "1", KILL="0")
    unasked = agent.perdure("resume", "--app", "work.py")
    assert unasked.code == 5, unasked
    assert f"perdure resume {name}" in unasked.err
    assert runs_of(agent)[0]["reason"] == "parked"
    asked = agent.perdure("resume", name, "--app", "work.py")
    assert asked.code == 0, asked


def test_run_held_by_a_live_process_is_not_taken(place: Any) -> None:
    place.write("work.py", SLOW)
    process = place.start("work.py")
    name = name_of(place)
    named = place.perdure("resume", name, "--app", "work.py")
    assert named.code == 5, named
    assert f"pid {process.pid} on " in named.err
    newest = place.perdure("resume")
    assert newest.code == 0, newest
    assert f"{name} is running, held by pid {process.pid}" in newest.out


def test_interrupted_resume_stays_resumable(place: Any) -> None:
    place.write("work.py", SLOW)
    place.start("work.py").kill()
    process = place.start("-m", "perdure", "resume", "--app", "work.py")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    run = runs_of(place)[0]
    assert (run["state"], run["cause"]) == ("queued", "its process was asked to stop")
    (place.folder / "quick").touch()
    assert place.perdure("resume", "--app", "work.py").code == 0


def test_reader_that_goes_away_does_not_stop_the_run(agent: Any) -> None:
    killed(agent, "0", "30")
    command = f"{sys.executable} -P -m perdure resume --app work.py 2>&1 | head -n 1"
    done = subprocess.run(  # noqa: S602 - a pipe is what is tested
        command,
        shell=True,
        cwd=agent.folder,
        env=agent.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "stopped" in done.stdout
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert runs_of(agent)[0]["state"] == "completed"


def test_finished_run_is_answered_from_its_record(agent: Any) -> None:
    agent.python("work.py", "1")
    result = agent.perdure("resume", name_of(agent))
    assert result.code == 0, result
    assert "nothing is left to resume" in result.err
    assert result.out == '"sent to ada@example.com"\n'
    assert agent.lines("log.txt") == ["fetch 0", "send ada@example.com"]


def test_newest_run_that_can_go_on_is_chosen(agent: Any) -> None:
    older = killed(agent, "1")
    newer = killed(agent, "1", "4")
    agent.python("work.py", "2")
    assert newer in agent.perdure("resume").err
    agent.perdure("resume", "--app", "work.py")
    assert older in agent.perdure("resume").err


def test_async_agent_resumes_too(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.step
        async def one() -> int:
            return 1

        @perdure.agent
        async def work() -> int:
            value = await one()
            if os.environ.get("KILL"):
                os.kill(os.getpid(), 9)
            return value + 1

        if __name__ == "__main__":
            perdure.run(work)
        """,
    )
    place.python("work.py", KILL="1")
    result = place.perdure("resume", "--app", "work.py")
    assert result.code == 0, result
    assert result.out == "2\n"


@pytest.mark.parametrize(("typed", "code", "state"), [(b"y", 0, "completed"), (b"n", 2, "queued"), (b"", 2, "queued")])
def test_file_that_seems_to_have_the_code_is_loaded_only_if_a_person_says_so(
    agent: Any, typed: bytes, code: int, state: str
) -> None:
    killed(agent, "1")
    process, terminal = on_terminal(agent, "-P", "-m", "perdure", "resume")
    read_until(terminal, b"seems to be in work.py. Load that and resume? [y/N]:")
    os.write(terminal, typed + b"\n")
    read_until(terminal, b"completed" if code == 0 else b"do: start its script again")
    assert process.wait(timeout=30) == code
    assert runs_of(agent)[0]["state"] == state


def test_json_is_one_object_with_run_result_and_what_was_saved(agent: Any) -> None:
    name = killed(agent, "1")
    shown = agent.perdure("resume", name, "--app", "work.py", "--json").json()
    assert (shown["run"]["name"], shown["run"]["state"]) == (name, "completed")
    assert shown["result"] == "sent to ada@example.com"
    assert (shown["saved"]["steps"], shown["exit_code"]) == (2, 0)
    finished = agent.perdure("resume", name, "--json").json()
    assert (finished["result"], finished["saved"]["steps"]) == ("sent to ada@example.com", 0)
    nothing = agent.perdure("resume", "--json").json()
    assert (nothing["run"], nothing["resumed"]) == (None, [])
    unknown = agent.perdure("resume", "nobody", "--json")
    assert (unknown.code, unknown.json()["error"]["code"]) == (2, "unknown_run")


def test_interrupted_resume_says_how_to_go_on(place: Any) -> None:
    place.write("work.py", SLOW)
    place.start("work.py").kill()
    process = place.start("-m", "perdure", "resume", "--app", "work.py")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    name = name_of(place)
    assert err.splitlines()[-3:] == [
        f"perdure: Run {name} was stopped (queued).",
        "   safe: its one completed step is saved.",
        f"     do: perdure resume {name} --app work.py",
    ]


def test_children_are_one_line_each_in_the_view_of_their_parent(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.step
        def one() -> int:
            return 1

        @perdure.agent
        def inner(number: int) -> int:
            return one() + number

        @perdure.agent
        def outer() -> int:
            first = one()
            if os.environ.get("KILL"):
                os.kill(os.getpid(), 9)
            return first + sum([perdure.start(inner, number).result() for number in range(3)])
        """,
    )
    place.perdure("run", "work.py:outer", KILL="1")
    result = place.perdure("resume", "--app", "work.py")
    assert (result.code, result.out) == (0, "7\n"), result
    assert len(re.findall(r"^  child \S+  completed, 1 step$", result.err, re.MULTILINE)) == 3
    assert result.err.splitlines()[-1] == "  completed  4 steps, delivery 2"
