"""A LangChain agent is killed: no answer of the model is asked for again, and no tool is called twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.testing.model_server import ModelProcess
from tests.adapters.recovery import IN_DOUBT, Reference, Trial, campaign, judge, uninterrupted
from tests.crash.nursery import Nursery
from tests.sampling import every

SCRIPT = """
from perdure.testing.model_server import Tool


def script(model):
    model.calls(Tool("look_up", {"what": "ada"}, id="call_1"))
    to_ada, to_bob = (Tool("send", {"what": f"to {name}"}, id=f"call_{name}") for name in ("ada", "bob"))
    model.calls(to_ada, to_bob, Tool("look_up", {"what": "bob"}, id="call_2"))
    model.calls(Tool("note", {"what": "sent"}, id="call_3"))
    model.says("All done.")
"""
FREE = ("look_up",)
"""The tool that is declared to be a step."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelProcess]:
    script = tmp_path_factory.mktemp("script") / "script.py"
    script.write_text(SCRIPT)
    with ModelProcess(script) as serving:
        yield serving


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.adapters.langchain_agent") as made:
        yield made


@pytest.fixture(scope="module")
def reference(nursery: Nursery, model: ModelProcess, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return uninterrupted(Trial(tmp_path_factory.mktemp("whole") / "whole", nursery, model), model_step="model")


@every(sampled=53)
def test_killed_at_every_moment_nothing_is_asked_or_done_twice(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, reference: Reference, stride: int
) -> None:
    campaign(f"LangChain-{stride}", tmp_path, nursery, model, reference, stride=stride, free=FREE)


@every(sampled=53)
def test_killed_at_every_moment_of_an_event_loop_nothing_is_asked_or_done_twice(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, stride: int
) -> None:
    settings = {"AGENT_IS_ASYNC": "1"}
    whole = uninterrupted(Trial(tmp_path / "whole-async", nursery, model, settings), model_step="model")
    name = f"LangChain async-{stride}"
    campaign(name, tmp_path, nursery, model, whole, stride=stride, free=FREE, settings=settings)


def test_of_parallel_calls_the_one_that_was_answered_is_kept_whatever_becomes_of_the_others(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, reference: Reference
) -> None:
    answered = "after:receipt:=send:call_ada#1#1"
    trial = Trial(tmp_path / "parallel", nursery, model)
    trial.kill(at=answered)
    judge(trial, reference, at=answered, free=FREE)
    of_ada = [entry.kind for entry in trial.journal().entries if entry.key == "=send:call_ada#1"]
    assert of_ada == ["intent", "receipt"]


def test_a_tool_that_was_under_way_is_in_doubt_and_reported_with_its_arguments(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, reference: Reference
) -> None:
    trial = Trial(tmp_path / "under-way", nursery, model)
    trial.kill(at="performed:note sent#1")
    ended = trial.run()
    assert ended.returncode == IN_DOUBT
    assert "note(what='sent') was started and never confirmed" in ended.err
    assert trial.outside()["note sent"] == 1
    judge(trial, reference, at="performed:note sent#1", free=FREE)


def test_a_tool_that_is_declared_a_step_is_simply_called_again(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, reference: Reference
) -> None:
    trial = Trial(tmp_path / "step", nursery, model)
    trial.kill(at="performed:look_up ada#1")
    judge(trial, reference, at="performed:look_up ada#1", free=FREE)
    assert (trial.doubted, trial.outside()["look_up ada"]) == ([], 2)
