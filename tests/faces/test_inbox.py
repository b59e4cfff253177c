"""`perdure inbox`: everything that waits for a person is listed, with the command that ends the wait."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.faces.waiting import ASKING, LEFT


@pytest.fixture
def asking(place: Any) -> Any:
    place.write("work.py", ASKING)
    return place


def test_every_open_question_is_listed_oldest_first_with_its_command(asking: Any) -> None:
    names = {}
    for agent in ("refund", "choose", "both"):
        asking.python("work.py", agent)
        names[agent] = asking.name()
    questions = asking.perdure("inbox", "--json").json()["questions"]
    assert [(asked["name"], asked["number"], asked["text"]) for asked in questions] == [
        (names["refund"], 1, "How much?"),
        (names["choose"], 1, "Send this?"),
        (names["both"], 1, "First colour?"),
        (names["both"], 2, "Second colour?"),
    ]
    refund, choose, _, second = questions
    assert refund["form"]["required"] == ["cents"]
    assert (choose["options"], choose["assignee"]) == (["send", "discard"], "lead")
    assert choose["due_at"] == pytest.approx(choose["asked_at"] + 8 * 3600, abs=1)
    assert choose["show"] == {"facts": "facts about ada"}
    assert refund["answer"] == f"perdure answer {names['refund']} --value <json>"
    assert choose["answer"] == f"perdure answer {names['choose']} <send|discard>"
    assert second["answer"] == f"perdure answer {names['both']} --question 2 <text>"
    shown = asking.perdure("inbox").out
    for asked in questions:
        assert asked["text"] in shown
        assert f"    next: {asked['answer']}\n" in shown


def test_answered_question_leaves_the_inbox_before_the_run_hears_of_it(asking: Any) -> None:
    asking.python("work.py", "both")
    name = asking.name()
    asking.perdure("answer", name, "red", "--question", "1")
    (left,) = asking.perdure("inbox", "--json").json()["questions"]
    assert left["number"] == 2
    asking.perdure("answer", name, "blue", "--question", "2")
    assert asking.perdure("inbox").out == f"Nothing in {asking_store(asking)} waits for a person.\n"


def test_question_of_a_run_whose_process_died_is_listed(asking: Any) -> None:
    asking.python("-c", LEFT, "choose", "WaitOpened", "human")
    assert asking.runs()[0]["state"] == "queued"
    assert [asked["text"] for asked in asking.perdure("inbox", "--json").json()["questions"]] == ["Send this?"]
    assert asking.perdure("answer", asking.name(), "send").code == 0
    assert asking.python("work.py", "choose").out == "result: sent to ada\n"


def test_effect_in_doubt_is_listed_beside_the_questions(agent: Any) -> None:
    assert agent.python("work.py", "1", KILL="send").code == -signal.SIGKILL
    agent.python("work.py", "1")
    whole = agent.perdure("inbox", "--json").json()
    (other,) = whole["others"]
    assert (whole["questions"], other["reason"]) == ([], "in_doubt")
    assert other["next"].startswith(f"perdure settle {agent.name()} send --did-not-happen")
    assert other["next"] in agent.perdure("inbox").out


def test_no_code_of_the_user_is_loaded(asking: Any) -> None:
    asking.python("work.py", "choose")
    asking.write("work.py", "raise SystemExit('the code was loaded')")
    for arguments in (
        ["inbox"],
        ["show"],
        ["show", "-"],
        ["show", "-", "--checkpoint"],
        ["pause", "-"],
        ["unpause", "-"],
        ["signal", "-", "go"],
        ["answer", "-", "send"],
        ["cancel", "-", "--yes"],
    ):
        result = asking.perdure(*arguments)
        assert result.code == 0, result
        assert "was loaded" not in result.out + result.err


@pytest.mark.parametrize(
    "arguments",
    [["inbox"], ["answer", "-", "x"], ["signal", "-", "x"], ["cancel", "-", "--yes"], ["pause", "-"], ["unpause", "-"]],
)
def test_store_that_is_not_there_is_not_made(place: Any, arguments: list[str]) -> None:
    result = place.perdure(*arguments)
    assert result.code == 6, result
    assert "There is no store at" in result.err
    assert list(place.folder.iterdir()) == []


def asking_store(place: Any) -> str:
    return str(place.perdure("show", "--json").json()["store"])
