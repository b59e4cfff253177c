"""A script edited between crash and resume: what still matches goes on, what does not parks and shows both calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests import warm
from tests.crash.evidence import read_journal
from tests.crash.nursery import environment
from tests.crash.trial import KILLED

PARKED: Final = 5
BEFORE_THE_AGENT: Final = """
import os, signal
from pathlib import Path
import perdure

@perdure.step
def fetch(number: int) -> int:
    with open("bodies", "a") as log:
        log.write(f"fetch {number}\\n")
    return number

@perdure.step
def weigh(number: int) -> int:
    with open("bodies", "a") as log:
        log.write(f"weigh {number}\\n")
    return 10 * number

@perdure.effect
def send(number: int) -> int:
    with open("sent", "a") as log:
        log.write(f"{number}\\n")
    return number

def perhaps_die() -> None:
    if os.environ.get("CRASH_HERE"):
        os.kill(os.getpid(), signal.SIGKILL)

@perdure.agent
def trip(start: int) -> int:
"""
AGENT: Final = """\
    first = fetch(start)
    second = weigh(first)
    third = fetch(3)
    perhaps_die()
    return send(second + third)
"""
AFTER_THE_AGENT: Final = """
print(perdure.run(trip, 1, run_id="trip"))
"""

UNHARMED: Final = {
    "a changed comment": AGENT.replace("third = fetch(3)", "third = fetch(3)  # the third one"),
    "a renamed variable": AGENT.replace("first", "begun"),
    "a step inserted after the crash": AGENT.replace("    return", "    fetch(4)\n    return"),
    "a guarded insertion": AGENT.replace(
        "    second", "    if perdure.patched('weigh twice'):\n        weigh(7)\n    second"
    ),
}
DIVERGED: Final = {
    "another step": (AGENT.replace("weigh(first)", "fetch(first)"), "weigh(number=1)", "fetch(number=1)"),
    "other arguments": (AGENT.replace("fetch(3)", "fetch(33)"), "fetch(number=3)", "fetch(number=33)"),
    "a removed step": (AGENT.replace("weigh(first)", "10 * first"), "weigh(number=1)", "fetch(number=3)"),
    "a removed last step": (AGENT.replace("fetch(3)", "3"), "fetch(number=3)", "send(number=13)"),
    "reordered steps": (
        AGENT.replace("weigh(first)", "0").replace("third = fetch(3)", "third = fetch(3)\n    second = weigh(first)"),
        "weigh(number=1)",
        "fetch(number=3)",
    ),
    "an inserted step": (AGENT.replace("    second", "    fetch(2)\n    second"), "weigh(number=1)", "fetch(number=2)"),
    "nothing left": ("    return 0\n", "fetch(number=1)", "without making this call"),
}


def run(
    folder: Path, agent: str, *, helpers: str = BEFORE_THE_AGENT, crash: bool = False
) -> subprocess.CompletedProcess[str]:
    script = folder / "trip.py"
    script.write_text(helpers + agent + AFTER_THE_AGENT)
    settings = {"CRASH_HERE": "yes"} if crash else {}
    return warm.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    assert run(tmp_path, AGENT, crash=True).returncode == KILLED
    assert (tmp_path / "bodies").read_text().splitlines() == ["fetch 1", "weigh 1", "fetch 3"]
    assert not (tmp_path / "sent").exists()
    return tmp_path


@pytest.mark.parametrize("agent", UNHARMED.values(), ids=UNHARMED.keys())
def test_an_edit_that_changes_no_recorded_call_resumes(crashed: Path, agent: str) -> None:
    resumed = run(crashed, agent)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == "13\n"
    bodies = (crashed / "bodies").read_text().splitlines()
    assert bodies[:3] == ["fetch 1", "weigh 1", "fetch 3"]
    assert not set(bodies[:3]) & set(bodies[3:])
    assert (crashed / "sent").read_text() == "13\n"


@pytest.mark.parametrize(("agent", "recorded", "called"), DIVERGED.values(), ids=DIVERGED.keys())
def test_an_edit_that_changes_a_recorded_call_parks_and_shows_both(
    crashed: Path, agent: str, recorded: str, called: str
) -> None:
    expect_parked(crashed, run(crashed, agent), recorded, called)
    restored = run(crashed, AGENT)
    assert (restored.returncode, restored.stdout) == (0, "13\n"), restored.stderr
    assert (crashed / "bodies").read_text().splitlines() == ["fetch 1", "weigh 1", "fetch 3"]
    assert (crashed / "sent").read_text() == "13\n"


def test_a_renamed_step_parks_and_shows_both_names(crashed: Path) -> None:
    renamed = run(crashed, AGENT.replace("weigh", "balance"), helpers=BEFORE_THE_AGENT.replace("weigh", "balance"))
    expect_parked(crashed, renamed, "weigh(number=1)", "balance(number=1)")


def test_a_result_that_no_longer_fits_its_type_parks_and_says_so(crashed: Path) -> None:
    retyped = BEFORE_THE_AGENT.replace("def weigh(number: int) -> int", "def weigh(number: int) -> list[str]")
    expect_parked(crashed, run(crashed, AGENT, helpers=retyped), "weigh", "no longer fits its return type")


def expect_parked(folder: Path, ended: subprocess.CompletedProcess[str], *shown: str) -> None:
    assert ended.returncode == PARKED, ended.stderr
    assert "Traceback" not in ended.stderr
    for text in shown:
        assert text in ended.stderr
    journal = read_journal(folder / ".perdure" / "perdure.db", "trip")
    assert (journal.state, journal.reason) == ("waiting", "parked")
    assert not (folder / "sent").exists()
