"""An agent of Google ADK is killed: no answer of the model is asked for again, and no tool is called twice."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.testing.model_server import ModelProcess
from tests.adapters.frameworks import file_of, python_with
from tests.adapters.recovery import IN_DOUBT, Reference, Trial, campaign, judge, uninterrupted
from tests.crash.evidence import reading
from tests.crash.nursery import Nursery, environment

pytestmark = pytest.mark.exhaustive

AGENT = Path(__file__).with_name("adk_agent.py")
FREE = ("look_up",)
"""The tool that is declared to be a step."""


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
    with Nursery("tests.adapters.adk_agent", python=python_with("adk")) as made:
        yield made


@pytest.fixture(scope="module")
def reference(nursery: Nursery, model: ModelProcess, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return uninterrupted(Trial(tmp_path_factory.mktemp("whole") / "whole", nursery, model), model_step="model")


def test_killed_at_every_moment_nothing_is_asked_or_done_twice(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, reference: Reference
) -> None:
    campaign("Google ADK", tmp_path, nursery, model, reference, stride=1, free=FREE)


def test_equal_calls_in_one_turn_are_told_apart_although_their_ids_are_new_in_every_process(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, reference: Reference
) -> None:
    trial = Trial(tmp_path / "equal", nursery, model)
    trial.kill(at="performed:send to ada#1")
    ended = trial.run()
    assert ended.returncode == IN_DOUBT
    assert "send(what='to ada')" in ended.err
    judge(trial, reference, at="performed:send to ada#1", free=FREE)
    assert sum(line.startswith("send to ada ") for line in trial.outside()) == 2


def test_what_a_tool_did_to_the_session_state_is_done_again_at_a_replay(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, reference: Reference
) -> None:
    last = [key for key in reference.moments if key.startswith("before:step:")][-1]
    trial = Trial(tmp_path / "state", nursery, model)
    trial.kill(at=last)
    assert not (trial.folder / "state").exists()
    judge(trial, reference, at=last, free=FREE)
    assert (trial.folder / "state").read_text() == "{'noted': 'sent'}"


def test_the_agent_of_the_guide_does_what_it_says(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "def script(model):\n"
        "    model.calls('find', order='A-17').calls('refund', order='A-17', cents=900).says('On its way.')\n"
    )
    with ModelProcess(script) as serving:
        told = subprocess.run(
            [python_with("adk"), str(file_of("adk.md", tmp_path)), "Refund order A-17"],
            env=environment(serving.environment()),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert told.stdout == "On its way.\n", told.stderr
    entries = [entry for database in tmp_path.glob(".perdure/*.db") for entry in kinds(database)]
    assert entries == ["model gemini-3-pro", "find", "model gemini-3-pro", "refund", "model gemini-3-pro"]


def kinds(database: Path) -> list[str]:
    with reading(database) as connection:
        rows = connection.execute("SELECT name FROM records WHERE kind IN ('step', 'receipt') ORDER BY seq")
        return [str(name) for (name,) in rows]
