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
    assert other["next"] == f"perdure settle {agent.name()} send <--happened [JSON] | --did-not-happen>"
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


def test_effect_that_was_settled_leaves_the_inbox_before_the_run_hears_of_it(agent: Any) -> None:
    agent.python("work.py", "1", KILL="send")
    agent.python("work.py", "1")
    agent.perdure("settle", "-", "--did-not-happen")
    assert "waits for a person" in agent.perdure("inbox").out
    assert agent.perdure("inbox", "--json").json()["others"] == []


def test_parked_run_is_listed_with_its_command(asking: Any) -> None:
    asking.python("work.py", "listen")
    name = asking.name()
    asking.perdure("signal", name, "go")
    asking.perdure("pause", name)
    assert asking.python("work.py", "listen").code == 5
    (other,) = asking.perdure("inbox", "--json").json()["others"]
    assert (other["name"], other["reason"], other["next"]) == (name, "parked", f"perdure unpause {name}")
    assert f"    next: perdure unpause {name}\n" in asking.perdure("inbox").out


def test_pages_hold_twenty_runs_and_lead_to_each_other(place: Any) -> None:
    place.write(
        "work.py",
        """
        perdure.configure(quiet=True, durability="process")

        @perdure.agent
        def work(number: int) -> str:
            return perdure.ask(f"Question {number}?").value

        for number in range(45):
            try:
                perdure.run(work, number)
            except perdure.errors.RunWaits:
                pass
        """,
    )
    assert place.python("work.py").code == 0
    found: list[str] = []
    page = 1
    while page:
        whole = place.perdure("inbox", "--page", str(page), "--json").json()
        assert (whole["page"], len(whole["questions"])) == (page, 20 if page < 3 else 5)
        found += [asked["text"] for asked in whole["questions"]]
        page = whole["next_page"]
    assert found == [f"Question {number}?" for number in range(45)]
    everything = place.perdure("inbox", "--all", "--json").json()
    assert ([asked["text"] for asked in everything["questions"]], everything["next_page"]) == (found, 0)
    shown = place.perdure("inbox", "--page", "2").out
    assert shown.endswith("next: perdure inbox --page 3\n")
    assert "page 2, 45 runs wait" in shown
    beyond = place.perdure("inbox", "--page", "9")
    assert (beyond.code, beyond.err.splitlines()[0]) == (2, "perdure: There is no page 9: 45 runs make 3 pages.")
    shown = place.perdure("inbox", "--limit", "15", "--page", "3").out
    assert (shown.count("  1 Question"), "Question 30?" in shown) == (15, True)
    assert "next: perdure inbox" not in place.perdure("inbox", "--page", "3").out
    (first,) = (asked for asked in everything["questions"] if asked["text"] == "Question 0?")
    place.perdure("answer", first["run_id"], "done")
    again = place.perdure("inbox", "--json").json()["questions"]
    assert [asked["text"] for asked in again] == found[1:21]


def test_runs_of_one_name_are_named_by_their_ids(place: Any) -> None:
    place.write(
        "work.py",
        """
        from perdure import clock
        clock.pick = lambda words: words[0]  # chance gives both the same name

        @perdure.agent
        def work(number: int) -> str:
            return perdure.ask("Which?").value

        for number in (1, 2):
            try:
                perdure.run(work, number, run_id=f"id-{number}")
            except perdure.errors.RunWaits:
                pass
        """,
    )
    assert place.python("work.py").code == 0
    questions = place.perdure("inbox", "--json").json()["questions"]
    assert [asked["answer"] for asked in questions] == ["perdure answer id-1 <text>", "perdure answer id-2 <text>"]


def asking_store(place: Any) -> str:
    return str(place.perdure("ls", "--json").json()["store"])
