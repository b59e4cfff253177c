"""A session of the Claude Agent SDK is killed and continued: what was kept is not asked again, and no tool is repeated.

The model and its tools run in the program that comes with the SDK, against the model server on this machine.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters import transcripts
from perdure.adapters.transcripts import Session
from perdure.settings import Settings
from perdure.store import open_cabinet
from perdure.store.cabinet import names_of
from perdure.testing.model_server import ModelProcess
from tests import summary
from tests.adapters.frameworks import file_of, python_with
from tests.adapters.recovery import Trial
from tests.crash.nursery import Nursery, environment
from tests.postgres import schema_url

pytestmark = pytest.mark.exhaustive

AGENT = Path(__file__).with_name("claude_agent.py")
WISHES = ("send ada", "send bob", "note done")
IN_TOOLS = [f"{side}:{wish}" for wish in WISHES for side in ("begun", "performed")]
AROUND_TOOLS = [f"{side}:note_call#{number}" for number in range(1, 7) for side in ("before", "after")]
AROUND_ENTRIES = [f"{side}:append#{number}" for number in range(1, 4) for side in ("before", "after")]
OF_THE_RUN = ["after:create_run#1", "after:step:main.0#1", "before:enter#1", "after:enter#1", "before:step:main.1#1"]
CONFORMANCE = """
import anyio, sys
from claude_agent_sdk.testing import run_session_store_conformance
from perdure.adapters.claude_agent import PerdureSessionStore


async def fresh():
    store = PerdureSessionStore(sys.argv[1])
    await store._write(lambda rows: rows.clear(b"c"))
    return store


anyio.run(run_session_store_conformance, fresh)
print("conforms")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelProcess]:
    script = tmp_path_factory.mktemp("script") / "script.py"
    written = re.search(r'SCRIPT = """(.*?)"""', AGENT.read_text(), re.DOTALL)
    assert written is not None
    script.write_text(written[1])
    with ModelProcess(script) as serving:
        yield serving


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.adapters.claude_agent", python=python_with("claude-agent")) as made:
        yield made


def test_killed_at_every_moment_a_session_goes_on_and_no_tool_is_called_twice(
    tmp_path: Path, nursery: Nursery, model: ModelProcess
) -> None:
    moments = [*IN_TOOLS, *AROUND_TOOLS, *AROUND_ENTRIES, *OF_THE_RUN]
    doubts = sum(killed_and_continued(tmp_path, nursery, model, at=moment) for moment in moments)
    planned = len(moments)
    summary.note("Claude Agent SDK", trials=planned, landed={"kills": planned}, planned=planned, in_doubt=doubts)
    assert doubts > 0


def test_a_session_goes_on_where_none_of_the_programs_own_files_are(
    tmp_path: Path, nursery: Nursery, model: ModelProcess
) -> None:
    trial = Trial(tmp_path / "elsewhere", nursery, model)
    trial.kill(at="performed:send bob")
    wait_for_the_program(trial.folder)
    shutil.rmtree(trial.folder / "settings")
    assert trial.run().out == "All done.\n"
    assert trial.outside() == dict.fromkeys(WISHES, 1)
    told = json.dumps(trial.asked()[-1].body["messages"])
    assert (told.count("send ada: done"), told.count(transcripts.IN_DOUBT[:20])) == (1, 1)


@pytest.mark.parametrize("store", ["memory:", "sqlite", "postgres"])
def test_the_sdks_own_suite_for_session_stores_passes(tmp_path: Path, store: str) -> None:
    if store == "postgres":
        pytest.importorskip("psycopg")
        with schema_url() as url:
            assert conforms(url, tmp_path, "postgres") == "conforms"
    else:
        assert conforms(store if store == "memory:" else f"{tmp_path}/sessions.db", tmp_path) == "conforms"


def test_the_agent_of_the_guide_does_what_it_says(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "def script(model):\n    model.calls('Bash', command='echo reviewed > outside').says('Reviewed.')\n"
    )
    settings = {"CLAUDE_CONFIG_DIR": str(tmp_path / "settings"), "IS_SANDBOX": "1", "DISABLE_TELEMETRY": "1"}
    with ModelProcess(script) as serving:
        told = subprocess.run(
            [python_with("claude-agent"), str(file_of("claude-agent.md", tmp_path)), "Review this."],
            env=environment(serving.environment() | settings),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert told.stdout == "Reviewed.\n", told.stderr
    assert (tmp_path / "outside").read_text() == "reviewed\n"


def conforms(store: str, folder: Path, *extras: str) -> str:
    python = python_with("claude-agent", *extras)
    told = subprocess.run(
        [python, "-c", CONFORMANCE, store], env=environment(), cwd=folder, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or told.stderr


def killed_and_continued(folder: Path, nursery: Nursery, model: ModelProcess, *, at: str) -> int:
    """How many tool calls the model was told to be in doubt."""
    trial = Trial(folder / re.sub(r"\W+", "-", at), nursery, model)
    trial.kill(at=at)
    wait_for_the_program(trial.folder)
    kept = kept_turns(trial)
    asked_before = len(trial.asked())
    ended = trial.run()
    assert (ended.returncode, ended.out) == (0, "All done.\n"), (at, ended)
    asked = trial.asked()[asked_before:]
    assert asked[0].turn >= kept, (at, kept, asked)
    assert [each.turn for each in asked] == sorted({each.turn for each in asked}), (at, asked)
    told = json.dumps(asked[-1].body["messages"])
    doubts = told.count(transcripts.IN_DOUBT[:20])
    assert max(trial.outside().values()) == 1, (at, trial.outside())
    assert len(WISHES) - len(trial.outside()) <= doubts <= 1, (at, trial.outside(), told)
    return doubts


def kept_turns(trial: Trial) -> int:
    """How often the model had spoken, by the transcript that is kept."""
    if not trial.database.exists():
        return 0
    cabinet = open_cabinet(Settings(store=str(trial.database)))
    try:
        sessions = [names_of(key) for key, _ in cabinet.read(lambda rows: rows.scan(transcripts.HEAD))]
        found: list[Any] = [cabinet.read(partial(transcripts.load, session=Session(*names))) for names in sessions]
    finally:
        cabinet.close()
    spoken = [entry for entries in found for entry in entries or () if entry.get("type") == "assistant"]
    return len({entry["message"]["id"] for entry in spoken})


def wait_for_the_program(folder: Path) -> None:
    """The program of the SDK outlives the process that started it for a moment: let it end."""
    while any(_stands_in(process, folder) for process in Path("/proc").glob("[0-9]*")):
        time.sleep(0.1)


def _stands_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cwd").readlink() == folder
    except OSError:
        return False
