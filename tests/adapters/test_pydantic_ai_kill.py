"""An agent of Pydantic AI is killed on either side of every commit and of every effect, and resumed elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.testing.model_server import Script, tool
from tests.adapters.agent_trials import Subject, every_point, one_of_two
from tests.crash.nursery import Nursery
from tests.sampling import every


def write(model: Script) -> None:
    """What the model says."""
    model.calls(tool("look", what="a"), tool("send", to="ada"), tool("look", what="b"))
    model.calls(tool("pay", cents=900), tool("send", to="bob"))
    model.says(["all ", "done"])


SUBJECT = Subject(
    "Pydantic AI",
    write,
    model_step="assistant.model",
    requests=3,
    result=["all done", ["a", "b"], 4],
    calls_at=2,
)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.adapters.pydantic_agent") as opened:
        yield opened


@every(sampled=43)
def test_killed_at_any_point_no_answer_is_asked_for_twice_and_no_tool_acts_twice(
    tmp_path: Path, nursery: Nursery, stride: int
) -> None:
    every_point(SUBJECT, nursery, tmp_path, stride=stride, streamed=False)


@every(sampled=43)
def test_killed_while_it_streams_no_answer_is_asked_for_twice_and_no_tool_acts_twice(
    tmp_path: Path, nursery: Nursery, stride: int
) -> None:
    every_point(SUBJECT, nursery, tmp_path, stride=stride, streamed=True)


def test_of_two_tools_that_are_called_at_once_what_one_has_done_is_kept(tmp_path: Path, nursery: Nursery) -> None:
    one_of_two(SUBJECT, nursery, tmp_path)
