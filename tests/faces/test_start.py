"""`perdure start`: a run is accepted and not executed, and is there from the moment its id is printed."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.faces.moving import runs_of


def test_started_run_is_queued_and_nothing_of_it_is_executed(agent: Any) -> None:
    result = agent.perdure("start", "work.py:report", "pages=2", "--tag", "team=billing")
    run = runs_of(agent)[0]
    assert (run["state"], run["cause"], run["tags"]) == ("queued", "accepted, not begun", {"team": "billing"})
    assert result.code == 0, result
    assert result.out.splitlines() == [
        f"{run['name']}  work.report  queued",
        f"  id:   {run['run_id']}",
        f"  next: perdure resume {run['name']} --app work.py",
    ]
    assert agent.lines("log.txt") == []


@pytest.mark.parametrize("how", [[], ["-"], ["--all"]])
def test_resume_executes_it(agent: Any, how: list[str]) -> None:
    agent.perdure("start", "work.py:report", "pages=2")
    assert agent.perdure("resume", *how, "--app", "work.py").code == 0
    assert runs_of(agent)[0]["state"] == "completed"
    assert agent.lines("log.txt") == ["fetch 0", "fetch 1", "send ada@example.com"]


def test_next_command_does_what_it_says(agent: Any) -> None:
    shown = agent.perdure("start", "work:report", "pages=1", "--json").json()
    assert shown["state"] == "queued"
    assert agent.perdure(*shown["next"].split()[1:]).out == '"sent to ada@example.com"\n'


def test_run_is_there_when_its_process_is_killed_right_after_the_id_was_printed(agent: Any) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_AT_ITS_WORD, "start", "work.py:report", "pages=1", "--json"],
        cwd=agent.folder,
        env=agent.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    out, _ = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert [run["run_id"] for run in runs_of(agent)] == [out.partition('"run_id": "')[2].partition('"')[0]]
    assert agent.perdure("resume", "--all", "--app", "work.py").code == 0
    assert agent.lines("log.txt") == ["fetch 0", "send ada@example.com"]


KILLED_AT_ITS_WORD = """
import os, sys
import click
from perdure.cli import main

echo = click.echo

def echo_and_die(*args, **kwargs):
    echo(*args, **kwargs)
    sys.stdout.flush()
    os.kill(os.getpid(), 9)

click.echo = echo_and_die
main(sys.argv[1:])
"""


def test_same_id_is_the_same_run(agent: Any) -> None:
    command = ("start", "work.py:report", "pages=1", "--id", "mine", "--json")
    assert agent.perdure(*command).json() == agent.perdure(*command).json()
    assert len(runs_of(agent)) == 1
    other = agent.perdure("start", "work.py:report", "pages=2", "--id", "mine")
    assert (other.code, "belongs to another call" in other.err) == (2, True)


def test_without_an_id_each_start_is_a_run(agent: Any) -> None:
    agent.perdure("start", "work.py:report", "pages=1")
    agent.perdure("start", "work.py:report", "pages=1")
    assert len(runs_of(agent)) == 2


def test_file_with_one_agent_needs_no_name_and_bad_input_starts_nothing(agent: Any) -> None:
    assert agent.perdure("start", "work.py", "pages=1").code == 0
    for words in (["work.py:report"], ["work.py:report", "page=1"], ["work.py:nope"], ["nope.py:report"], ["."]):
        result = agent.perdure("start", *words)
        assert result.code == 2, result
        assert "nothing was started" in result.err
    assert agent.perdure("start", "work.py", "pages=1", PERDURE_STORE="memory:").code == 2
    assert len(runs_of(agent)) == 1


def test_deadline_counts_from_the_moment_of_acceptance(agent: Any) -> None:
    agent.perdure("start", "work.py:report", "pages=1", "--deadline", "0.001s")
    result = agent.perdure("resume", "--app", "work.py")
    assert (result.code, "past its deadline" in result.err) == (1, True)
    assert agent.lines("log.txt") == []
