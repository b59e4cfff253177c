"""A process of the warm server is what a new interpreter would be, as far as a test can see."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm

SHOWS = """
import os, sys
print(__name__, __file__, sys.argv, sys.orig_argv, sys.path[:2], os.getcwd(), sorted(os.environ), sys.stdin.read())
print(sys.stdout.encoding, sys.stdout.line_buffering, sys.stderr.errors, sys.stderr.line_buffering, file=sys.stderr)
"""
FAILS = "def fails():\n    1 / 0\nfails()\n"
ENDS = """
import atexit, threading, time
atexit.register(print, "last")
threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["shows.py", "a", "b"],
        ["-P", "shows.py"],
        ["fails.py"],
        ["not-there.py"],
        ["-c", "import sys; print(sys.argv, sys.path[0])", "a"],
        ["-c", "raise SystemExit(7)"],
        ["-c", "raise SystemExit('no')"],
        ["-c", "import os; os.kill(os.getpid(), 9)"],
        ["-c", ENDS],
        ["-c", "import sys; sys.stdout.write('not flushed')"],
        ["-m", "perdure", "--version"],
        ["-P", "-m", "perdure", "no-such-command"],
        ["-m", "json.tool", "--help"],
        ["-m", "no.such.module"],
    ],
    ids=" ".join,
)
def test_it_prints_and_ends_as_a_new_interpreter_does(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "shows.py").write_text(SHOWS)
    (tmp_path / "fails.py").write_text(FAILS)
    command = [sys.executable, *arguments]
    options: dict[str, Any] = {"cwd": tmp_path, "env": dict(os.environ), "input": "typed", "text": True}
    cold = subprocess.run(command, capture_output=True, check=False, **options)
    found = warm.run(command, capture_output=True, **options)
    assert (found.returncode, found.stdout, found.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_it_is_killed_and_waited_for_like_any_other() -> None:
    command = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]
    with warm.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL


def test_interrupted_it_ends_by_the_signal() -> None:
    command = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]
    with warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT


@pytest.mark.parametrize("end", ["raise SystemExit(7)", "import os; os.kill(os.getpid(), 9)", "1 / 0"])
def test_a_client_prints_and_ends_as_the_program_that_it_stands_for(end: str) -> None:
    words = ["-c", f"import sys; print(sys.argv, sys.stdin.read(), flush=True); {end}", "a"]
    with warm.serving() as address:
        found, cold = (
            subprocess.run(
                [sys.executable, *before, *words], input="typed", capture_output=True, text=True, check=False
            )
            for before in (("-IS", str(warm.CLIENT), address), ())
        )
    assert (found.returncode, found.stdout, found.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_many_at_once_are_told_apart() -> None:
    codes = [f"import time; time.sleep(0.05); raise SystemExit({number})" for number in range(20)]
    processes = [warm.Popen([sys.executable, "-c", code]) for code in codes]
    assert [process.wait(60) for process in processes] == list(range(20))


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_it_hashes_with_the_seed_that_was_asked_for(hash_seed: str) -> None:
    command = [sys.executable, "-c", "print(hash('ada'))"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    cold = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert warm.run(command, capture_output=True, env=environment).stdout == cold.stdout


@pytest.mark.parametrize("setting", ["", "1"])
def test_it_keeps_compiled_code_or_not_as_was_asked_for(setting: str) -> None:
    command = [sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": setting}
    cold = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert warm.run(command, capture_output=True, env=environment).stdout == cold.stdout


def test_it_starts_others_as_it_was_started_itself() -> None:
    starts = "import os, sys; from tests import warm; warm.run(sys.argv[1:], env=dict(os.environ)); print(os.getppid())"
    child = [sys.executable, "-c", "import os; print(os.getppid())"]
    environment = {**os.environ, **warm.addresses(), "PYTHONPATH": str(Path(__file__).parents[2])}
    found = warm.run([sys.executable, "-c", starts, *child], env=environment, capture_output=True, text=True)
    assert found.stderr == ""
    one, other = found.stdout.split()
    assert one == other
