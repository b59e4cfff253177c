"""research.py: killed while its children work, everything that was committed stands, and each topic is studied once."""

from __future__ import annotations

import json
import re

import pytest

from tests.examples.stage import Stage

TOPICS = ["owls", "otters", "moles", "herons"]
RESULT = "a summary: write about 5 facts, done"


def _committed(stage: Stage) -> set[tuple[str, str]]:
    """Every search and every text that is committed, as the step and what it is about."""
    found = set()
    for run_id in [*stage.run_ids("research.research"), *stage.run_ids("research.study")]:
        for entry in stage.journal(run_id).entries:
            if entry.kind == "step" and entry.name in {"search", "write"}:
                text = json.dumps(entry.body["value"])
                found.add((entry.name, re.findall("owls|otters|moles|herons|a plan|a summary", text)[0]))
    return found


def test_uncrashed_the_flaky_search_is_attempted_again_and_the_summary_is_written(stage: Stage) -> None:
    ended = stage.run()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, RESULT), ended
    assert sorted(stage.called_with("made_up_search")) == sorted(TOPICS * 2)
    assert sorted(stage.called_with("made_up_model")) == sorted(["a plan", *TOPICS, "a summary"])


@pytest.mark.parametrize(
    ("function", "line", "occurrence"),
    [
        ("made_up_search", "raise ConnectionError", 2),
        pytest.param("made_up_search", "return", 3, marks=pytest.mark.exhaustive),
        pytest.param("made_up_model", "time.sleep", 3, marks=pytest.mark.exhaustive),
        ("made_up_model", "return", 4),
        ("made_up_model", "time.sleep", 6),
    ],
)
def test_killed_with_its_children_every_topic_is_studied_once_and_the_saving_is_told(
    stage: Stage, function: str, line: str, occurrence: int
) -> None:
    stage.kill_in(function, line, occurrence=occurrence)
    before = _committed(stage)
    assert ("write", "a plan") in before
    assert ("write", "a summary") not in before
    searched, written = stage.returned_with("made_up_search"), stage.called_with("made_up_model")

    ended = stage.run()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, RESULT), ended
    assert re.search(r"resumed \S+ at step \d+: .* not repeated, saved .* and \$0\.02", ended.err), ended
    again_searched = stage.returned_with("made_up_search")[len(searched) :]
    again_written = stage.called_with("made_up_model")[len(written) :]
    assert not before & {("search", topic) for topic in again_searched}
    assert not before & {("write", about) for about in again_written}
    assert sorted(again_written) == sorted(about for step, about in _everything() - before if step == "write")

    assert _committed(stage) == _everything()
    children = stage.run_ids("research.study")
    assert len(children) == len(TOPICS)
    assert {stage.journal(child).state for child in children} == {"completed"}
    assert stage.kills == 1


def _everything() -> set[tuple[str, str]]:
    texts = [("write", about) for about in ("a plan", *TOPICS, "a summary")]
    return {*texts, *(("search", topic) for topic in TOPICS)}
