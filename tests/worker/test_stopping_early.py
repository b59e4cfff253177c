"""A worker that is asked to end before it has begun ends well: from its first instruction on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faces.conftest import Place
from tests.worker.conftest import PATIENCE, Crew

ASKS_AT = """
import os, signal, sys

def ask(event, arguments, asked=[]):
    place = getattr(arguments[0], "co_filename", "") if event == "exec" else event
    if place.endswith(os.environ["ASK_AT"]) and not asked:
        asked.append(event)
        open("asked", "w").close()
        os.kill(os.getpid(), int(os.environ["ASK_WITH"]))

sys.addaudithook(ask)
"""

MOMENTS = [
    "perdure/cli/__init__.py",
    "click/__init__.py",
    "perdure/cli/worker.py",
    "perdure/engine/agent.py",
    "perdure/worker/supervisor.py",
    "socket.bind",
    "os.fork",
]

ENDS_ITS_PARENT = """
    os.kill(os.getppid(), signal.SIGTERM)
    while True:
        time.sleep(60)
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    Crew(made)
    (tmp_path / "sitecustomize.py").write_text(ASKS_AT)
    made.environment["PYTHONPATH"] = os.pathsep.join((str(tmp_path), made.environment["PYTHONPATH"]))
    return made


def ended(place: Place, *arguments: str, at: str, number: int) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "perdure", *arguments],
        cwd=place.folder,
        env={**place.environment, "ASK_AT": at, "ASK_WITH": str(number)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (place.folder / "asked").exists()
    return done


@pytest.mark.parametrize(
    ("at", "number"),
    [
        *((at, signal.SIGTERM) for at in MOMENTS),
        (MOMENTS[0], signal.SIGHUP),
        *(pytest.param(at, signal.SIGHUP, marks=pytest.mark.exhaustive) for at in MOMENTS[1:]),
    ],
)
def test_worker_that_is_asked_to_end_while_it_loads_ends_with_0(place: Place, at: str, number: int) -> None:
    done = ended(place, "worker", "app.py", "--health", "0", at=at, number=number)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_worker_that_is_asked_to_end_while_its_code_is_loaded_ends_with_0(place: Place) -> None:
    place.write("endless.py", ENDS_ITS_PARENT)
    result = place.perdure("worker", "endless.py", ASK_AT="nowhere", ASK_WITH="0")
    assert (result.code, result.out, result.err) == (0, "", "")


@pytest.mark.parametrize("options", [["--store", "worker"], []])
def test_only_a_worker_takes_that_as_a_drain(place: Place, options: list[str]) -> None:
    done = ended(place, *options, "ps", at="perdure/cli/__init__.py", number=signal.SIGTERM)
    assert done.returncode == -signal.SIGTERM


@pytest.mark.parametrize("at", ["click/__init__.py", "perdure/cli/ps.py"])
def test_command_that_is_interrupted_while_it_loads_shows_no_traceback(place: Place, at: str) -> None:
    done = ended(place, "ps", at=at, number=signal.SIGINT)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
