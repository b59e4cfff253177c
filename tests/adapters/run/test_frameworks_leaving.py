"""Tool calls that are no tools, and tools that are left before they have an outcome."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.testing.model_server import ModelServer, answer, tool
from tests.adapters.run.trials import Trial, judge, uninterrupted
from tests.crash.nursery import Nursery
from tests.sampling import every, points

SAMPLED = 70


@pytest.fixture
def nursery(together: Nursery) -> Nursery:
    return together


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as served:
        yield served


def killed(folder: Path, nursery: Nursery, model: ModelServer, name: str, *, stride: int) -> Trial:
    """Execute it, kill it at every so many moments, and judge each; the one that nobody killed."""
    first = Trial(folder / "whole", nursery, model, "leaving.py", [name])
    whole = uninterrupted(first)
    for number, moment in enumerate(points(whole.moments, stride)):
        judge(Trial(folder / f"{number}", nursery, model, "leaving.py", [name]), whole, at=moment)
    return first


@every(sampled=SAMPLED)
def test_a_handoff_is_no_unprotected_tool_and_what_is_done_at_it_is_done_once(
    tmp_path: Path, nursery: Nursery, model: ModelServer, stride: int
) -> None:
    model.calls("transfer_to_clerk").calls("transfer_to_writer").calls("send", to="ada").says("all done")
    first = killed(tmp_path, nursery, model, "handoff", stride=stride)
    assert first.outside().keys() == {"handed over", "send ada"}


@every(sampled=SAMPLED)
def test_what_an_agent_that_is_a_tool_asks_and_does_is_recorded_by_itself(
    tmp_path: Path, nursery: Nursery, model: ModelServer, stride: int
) -> None:
    inner = model.conversation(containing="You write.")
    inner.calls("send", to="ada").says("written")
    model.calls("write", input="to ada").says("all done")
    first = killed(tmp_path, nursery, model, "agent_tool", stride=stride)
    recorded = [entry.name for entry in first.journal().entries if entry.kind == "receipt"]
    assert recorded == ["send"]


@every(sampled=SAMPLED)
def test_an_answer_that_is_given_as_a_tool_call_is_no_unprotected_tool(
    tmp_path: Path, nursery: Nursery, model: ModelServer, stride: int
) -> None:
    model.calls("count", number=1).calls("final_result", to="ada").calls("count", number=2).calls(
        "final_result", to="bob"
    )
    killed(tmp_path, nursery, model, "answer", stride=stride)


@every(sampled=SAMPLED)
def test_an_interrupt_inside_a_tool_is_no_outcome_of_it(
    tmp_path: Path, nursery: Nursery, model: ModelServer, stride: int
) -> None:
    model.calls("send", to="ada").says("all done")
    first = killed(tmp_path, nursery, model, "interrupted", stride=stride)
    assert first.outside() == {"send ada": 1}


@every(sampled=SAMPLED)
def test_an_approval_that_a_tool_asks_for_is_no_outcome_of_it(
    tmp_path: Path, nursery: Nursery, model: ModelServer, stride: int
) -> None:
    model.calls("send", to="ada").says("all done")
    first = killed(tmp_path, nursery, model, "approval", stride=stride)
    assert first.outside() == {"send ada": 1}


def test_arguments_that_do_not_fit_are_no_unprotected_tool(
    tmp_path: Path, nursery: Nursery, model: ModelServer
) -> None:
    model.replies(lambda _: answer("", tool("count", number="many"))).calls("final_result", to="ada")
    model.calls("final_result", to="bob")
    ended = Trial(tmp_path / "one", nursery, model, "leaving.py", ["answer"]).run()
    assert ended.returncode == 0, ended.err
    assert "not protected: the tool" not in ended.err
