"""One frozen journal: the calls of an agent that starts strands in every way there is, on every supported Python.

To freeze it anew, after a change of format that old journals need not survive: `golden_agent.py dump STORE` prints the
new golden_dump.json; kind, key and name of its calls, sorted, are the new golden_journal.json.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.environments import CannotBeMade, python_with

HERE = Path(__file__).parent
SOURCE = Path(perdure.__file__).parents[1]
NEEDED = ("msgspec", "apsw", "click")
PYTHONS = ("3.11", pytest.param("3.12", marks=pytest.mark.exhaustive), "3.13")
"""The oldest and the newest; one between them needs an environment of its own, and is for the exhaustive tests."""


@pytest.fixture(scope="module", params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter of this version that has what perdure needs."""
    version: str = request.param
    found = sys.executable if _version(sys.executable) == version else _find(version)
    if found is None:
        pytest.skip(f"Python {version} is not installed here")
    if _has_needed(found):
        return found
    try:
        return python_with(NEEDED, name=f"python{version}", python=found)
    except CannotBeMade as error:
        pytest.skip(f"Python {version} is here, but {', '.join(NEEDED)} cannot be installed for it: {error}")


def test_the_frozen_journal_replays_and_nothing_is_executed_again(python: str, tmp_path: Path) -> None:
    dump = json.loads((HERE / "golden_dump.json").read_text())
    answer = _golden(python, "replay", tmp_path / "perdure.db", HERE / "golden_dump.json")
    assert answer["executed"] == []
    assert answer["result"] == dump["result"]


def test_a_fresh_run_makes_the_frozen_calls(python: str, tmp_path: Path) -> None:
    answer = _golden(python, "record", tmp_path / "perdure.db")
    assert answer["calls"] == json.loads((HERE / "golden_journal.json").read_text())
    assert answer["result"] == json.loads((HERE / "golden_dump.json").read_text())["result"]


def test_the_frozen_dump_holds_the_frozen_calls() -> None:
    records = json.loads((HERE / "golden_dump.json").read_text())["records"]
    calls = sorted([record["kind"], record["key"], record["name"]] for record in records if record["key"])
    assert calls == json.loads((HERE / "golden_journal.json").read_text())


def _golden(python: str, verb: str, *arguments: Path) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "PYTHON"))}
    done = subprocess.run(
        [python, HERE / "golden_agent.py", verb, *arguments],
        env={**environment, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _find(version: str) -> str | None:
    places = [shutil.which(f"python{version}")]
    places += map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True))
    return next((place for place in places if place is not None and _version(place) == version), None)


def _version(python: str) -> str | None:
    """Which Python this really is: a shim of that name may lead nowhere."""
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _has_needed(python: str) -> bool:
    return (
        subprocess.run([python, "-c", f"import {', '.join(NEEDED)}"], capture_output=True, check=False).returncode == 0
    )
