"""A script that is interrupted, or stopped by one of our errors: what it prints, its exit code, and that it resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.engine.session import session

SCRIPT = """
import asyncio, os, signal, sys
import perdure

@perdure.step
def first() -> str:
    print("first", flush=True)
    return "first"

@perdure.step
def second() -> str:
    print("second", flush=True)
    if os.environ.get("INTERRUPTED"):
        signal.pause()
    return "second"

@perdure.step
async def second_async() -> str:
    print("second", flush=True)
    if os.environ.get("INTERRUPTED"):
        await asyncio.Event().wait()
    return "second"

@perdure.effect
def send() -> str:
    print("sent", flush=True)
    raise TimeoutError("no answer")

@perdure.step
def fails() -> str:
    raise ValueError("of the agent itself")

@perdure.agent
def sync_agent() -> str:
    return first() + second()

@perdure.agent
async def async_agent() -> str:
    return first() + await second_async()

@perdure.agent
def doubtful() -> str:
    return first() + send()

@perdure.agent
def failing() -> str:
    return first() + fails()

@perdure.agent
def unstorable() -> object:
    return object()

if __name__ == "__main__":
    print(perdure.run(globals()[sys.argv[1]]))
"""


def _command(folder: Path, agent: str) -> list[str]:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return [sys.executable, str(script), agent]


def _environment(store: Path, **others: str) -> dict[str, str]:
    source = str(Path(perdure.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "PERDURE_STORE": str(store), **others}


def _run(folder: Path, store: Path, agent: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(folder, agent), env=_environment(store), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("agent", ["sync_agent", "async_agent"])
def test_ctrl_c_gives_the_run_back_and_the_same_command_resumes_it(agent: str, tmp_path: Path, store: Path) -> None:
    process = subprocess.Popen(
        _command(tmp_path, agent), env=_environment(store, INTERRUPTED="1"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert [process.stdout.readline(), process.stdout.readline()] == ["first\n", "second\n"]
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == ""
    process.stdout.close()
    assert process.wait(30) in (-signal.SIGINT, 130)
    (run,) = session().store.list_runs()
    assert (run.state, run.holder, run.deliveries) == ("queued", "", 0)
    done = _run(tmp_path, store, agent)
    assert done.stdout == "second\nfirstsecond\n"


def test_an_effect_in_doubt_prints_three_lines_and_exits_with_4(tmp_path: Path, store: Path) -> None:
    done = _run(tmp_path, store, "doubtful")
    assert done.returncode == 4
    assert done.stdout == "first\nsent\n"
    lines = done.stderr.splitlines()[-3:]
    assert lines[0].startswith("perdure: Run ")
    assert "send() was started and never confirmed" in lines[0]
    assert lines[1].startswith("   safe: its one completed step is saved")
    assert lines[2].startswith("     do: ")
    assert "Traceback" not in done.stderr
    assert _run(tmp_path, store, "doubtful").stdout == ""


def test_a_failure_of_the_agent_itself_prints_its_traceback_and_exits_with_1(tmp_path: Path, store: Path) -> None:
    done = _run(tmp_path, store, "failing")
    assert done.returncode == 1
    assert "ValueError: of the agent itself" in done.stderr
    assert "Traceback" in done.stderr


def test_a_usage_error_exits_with_2(tmp_path: Path, store: Path) -> None:
    done = _run(tmp_path, store, "unstorable")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_script_and_its_import_are_the_same_agent(tmp_path: Path, store: Path) -> None:
    command = _command(tmp_path, "sync_agent")
    subprocess.run(command, env=_environment(store), capture_output=True, check=True, timeout=60)
    code = "import script, perdure; print(script.sync_agent.__perdure_agent__.name)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=_environment(store), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (run,) = session().store.list_runs()
    assert done.stdout.strip() == run.agent == "script.sync_agent"
