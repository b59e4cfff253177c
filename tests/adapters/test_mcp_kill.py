"""An agent that calls the tools of an MCP server is killed: nothing that was answered is asked or done again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.testing.model_server import ModelProcess
from tests.adapters.recovery import IN_DOUBT, Reference, Trial, campaign, judge, uninterrupted
from tests.crash.nursery import Nursery
from tests.sampling import every

SCRIPT = """
from perdure.testing.model_server import tool


def script(model):
    model.calls("look_up", what="ada")
    model.calls(tool("send", what="to ada"), tool("label", what="urgent"))
    model.calls("note", what="sent")
    model.says("All done.")
"""
FREE = ("look_up", "label")
"""The tools whose annotations say that they may be called again."""
TOOLS = ("look_up", "send", "label", "note")
IN_THE_SERVER = [f"{side}:{tool}" for tool in TOOLS for side in ("received", "performed")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelProcess]:
    script = tmp_path_factory.mktemp("script") / "script.py"
    script.write_text(SCRIPT)
    with ModelProcess(script) as serving:
        yield serving


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.adapters.mcp_agent") as made:
        yield made


@pytest.fixture(scope="module")
def reference(nursery: Nursery, model: ModelProcess, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return uninterrupted(Trial(tmp_path_factory.mktemp("whole") / "whole", nursery, model), model_step="think")


@every(sampled=31)
def test_killed_on_every_side_of_every_write_nothing_is_asked_or_done_twice(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, reference: Reference, stride: int
) -> None:
    extra = IN_THE_SERVER if stride == 1 else ()
    campaign(f"MCP tools-{stride}", tmp_path, nursery, model, reference, stride=stride, extra=extra, free=FREE)


@pytest.mark.parametrize("side", ["received", "performed"])
def test_a_destructive_tool_whose_answer_is_lost_is_in_doubt_and_not_called_again(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, reference: Reference, side: str
) -> None:
    trial = Trial(tmp_path / f"send-{side}", nursery, model)
    trial.kill(at=f"{side}:send")
    ended = trial.run()
    assert ended.returncode == IN_DOUBT
    assert "post.send(what='to ada') was started and never confirmed" in ended.err
    assert trial.outside()["send to ada"] == 1
    judge(trial, reference, at=f"{side}:send", free=FREE)


def test_a_tool_of_which_the_server_says_nothing_is_an_effect(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, reference: Reference
) -> None:
    trial = Trial(tmp_path / "unsaid", nursery, model)
    trial.kill(at="performed:note")
    judge(trial, reference, at="performed:note", free=FREE)
    assert trial.doubted == ["post.note"]


def test_a_read_only_tool_whose_answer_is_lost_is_simply_called_again(
    tmp_path: Path, nursery: Nursery, model: ModelProcess, reference: Reference
) -> None:
    trial = Trial(tmp_path / "read-only", nursery, model)
    trial.kill(at="performed:look_up")
    judge(trial, reference, at="performed:look_up", free=FREE)
    assert (trial.doubted, trial.outside()["look_up ada"]) == ([], 2)
