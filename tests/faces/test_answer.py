"""`perdure answer`: a person's answer is checked, kept once, and taken up by whoever runs the agent next."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.faces.terminal import typed
from tests.faces.waiting import ASKING, LEFT


@pytest.fixture
def asking(place: Any) -> Any:
    place.write("work.py", ASKING)
    return place


def ask(place: Any, agent: str) -> str:
    """Run an agent until it asks; the run's name."""
    assert place.python("work.py", agent).code == 3
    return str(place.name())


def test_choice_is_taken_up_by_a_resume_and_nothing_before_it_runs_again(asking: Any) -> None:
    name = ask(asking, "choose")
    result = asking.perdure("answer", name, "send", "--by", "Ada")
    assert result.code == 0, result
    assert re.sub(r"asked \d+ s ago", "asked N s ago", result.out).splitlines() == [
        f"{name}  work.choose asks",
        "  1 Send this?",
        "    asked N s ago   due in 8 h   for lead",
        '    | {"facts":"facts about ada"}',
        "    choices: send | discard",
        "  answered by Ada",
        f"  next: perdure resume {name} --app work.py",
    ]
    assert asking.python("work.py", "choose").out == "result: sent to ada\n"
    assert asking.lines("log.txt") == ["research", "send ada"]
    assert "ask  answered: send (by Ada)" in asking.perdure("show", name).out


def test_resume_command_that_is_shown_goes_on(asking: Any) -> None:
    name = ask(asking, "choose")
    said = asking.perdure("answer", name, "discard", "--by", "Ada").out
    command = said.splitlines()[-1].partition("next: perdure ")[2].split()
    result = asking.perdure(*command)
    assert result.code == 0, result
    assert result.out == '"discarded by Ada"\n'


def test_free_text_is_the_answer_as_it_is(asking: Any) -> None:
    name = ask(asking, "describe")
    assert asking.perdure("answer", name, "Ada Lovelace, née Byron").code == 0
    assert asking.python("work.py", "describe").out == "result: Ada Lovelace, née Byron\n"


def test_form_shows_its_fields_and_a_misfit_names_field_and_expectation(asking: Any) -> None:
    name = ask(asking, "refund")
    for given, said in (
        ('{"cents": "five"}', 'answer.cents must be an integer, not "five"'),
        ("{}", "answer.cents is missing: an integer is expected"),
        ('{"cents": 0}', "answer.cents must be at least 1, not 0"),
        ('{"cents": 5, "colour": 1}', "answer.colour is unknown; known are cents, why"),
    ):
        result = asking.perdure("answer", name, "--value", given)
        assert result.code == 2, result
        assert said in result.err
        assert f"safe: nothing was recorded; run {name} still waits." in result.err
        assert len(result.err.splitlines()) == 3
    result = asking.perdure("answer", name, "--value", '{"cents": 5}')
    assert result.code == 0, result
    assert '      cents  integer {"minimum":1}\n' in result.out
    assert "      why    string (may be left out): for the books\n" in result.out
    assert asking.python("work.py", "refund").out == "result: refund 5\n"


def test_first_answer_counts_and_a_second_is_refused(asking: Any) -> None:
    name = ask(asking, "choose")
    assert asking.perdure("answer", name, "send", "--by", "Ada").code == 0
    second = asking.perdure("answer", name, "discard", "--by", "Bob")
    assert second.code == 2, second
    assert "has been answered before" in second.err
    assert "the first answer counts" in second.err
    assert "an answer by Bob came second or too late, and was not used" in asking.perdure("show", name).out
    assert asking.python("work.py", "choose").out == "result: sent to ada\n"


def test_several_questions_are_answered_by_number_or_text(asking: Any) -> None:
    name = ask(asking, "both")
    unclear = asking.perdure("answer", name, "red")
    assert unclear.code == 2, unclear
    assert "has 2 open questions" in unclear.err
    first = asking.perdure("answer", name, "red", "--question", "1")
    assert first.code == 0, first
    assert "  still open: 2 Second colour?\n" in first.out
    assert f"  next: perdure answer {name} --question 2 <text>\n" in first.out
    second = asking.perdure("answer", name, "blue", "--question", "Second")
    assert f"  next: perdure resume {name} --app work.py\n" in second.out, second
    assert asking.python("work.py", "both").out == "result: red+blue\n"


def test_answer_to_a_child_names_the_parent_to_resume(asking: Any) -> None:
    asking.python("-c", LEFT, "parent", "RunEnded", "child")
    runs = {run["agent"]: run for run in asking.runs()}
    child, parent = runs["work.choose"], runs["work.parent"]
    assert parent["next"] == f"perdure answer {child['name']} <send|discard>"
    result = asking.perdure("answer", child["name"], "send")
    assert result.code == 0, result
    assert f"  next: perdure resume {parent['name']} --app work.py\n" in result.out
    assert asking.python("work.py", "parent").out == "result: parent: sent to ada\n"
    assert asking.lines("log.txt") == ["research", "send ada"]


def test_refusals_are_three_lines_and_record_nothing(asking: Any) -> None:
    name = ask(asking, "choose")
    for arguments, said in (
        (["maybe"], "the answer must be one of send, discard, not 'maybe'"),
        (["--value", "{"], "--value { is not JSON"),
        (["--value", "NaN"], "is not JSON"),
        (["send", "--value", '"send"'], "ANSWER and --value exclude each other."),
        (["send", "--question", "7"], "0 open questions like that"),
        (["send", "--question", "Pay?"], "0 open questions like that"),
        (["send", "--by", "\x1b[31m"], "is no name"),
        (["send", "--by", " "], "is no name"),
        ([], "No answer was given, and there is no terminal to ask on."),
    ):
        result = asking.perdure("answer", name, *arguments)
        assert result.code == 2, result
        assert said in result.err
        assert len(result.err.splitlines()) == 3, result
        assert "Traceback" not in result.err
    assert asking.runs()[0]["next"] == f"perdure answer {name} <send|discard>"
    assert asking.perdure("answer", "no-such-run", "send").code == 2


def test_run_that_does_not_ask_is_refused_in_words(asking: Any) -> None:
    name = ask(asking, "choose")
    asking.perdure("answer", name, "discard")
    asking.python("work.py", "choose")
    result = asking.perdure("answer", name, "send")
    assert result.code == 2, result
    assert f"Run {name} is completed: it no longer asks." in result.err


def test_expired_question_is_refused(asking: Any) -> None:
    asking.python("-c", LEFT, "late", "WaitOpened", "human")
    name = asking.name()
    until = time.monotonic() + 60
    while asking.perdure("inbox", "--json").json()["questions"]:
        assert time.monotonic() < until, "the question never expires"
    result = asking.perdure("answer", name, "yes")
    assert result.code == 2, result
    assert "'Too late?' has expired" in result.err


def test_hostile_text_of_a_question_cannot_control_the_terminal(place: Any) -> None:
    place.write(
        "work.py",
        r"""
        @perdure.agent
        def work() -> str:
            asked = "Pay\x1b[2J?\r\nor not\u202e"
            return perdure.ask(asked, options=["y\x1b]0;t\x07", "no"], show="a\x9b31m\nb").choice

        perdure.run(work)
        """,
    )
    place.python("work.py")
    name = place.name()
    for arguments in (["inbox"], ["answer", name], ["answer", name, "maybe"], ["show", name], ["show"]):
        result = place.perdure(*arguments)
        shown = (result.out + result.err).replace("\n", "")
        assert shown.isprintable(), ascii(shown)
    assert r"Pay\x1b[2J?\r" in place.perdure("inbox").out


def test_command_that_is_shown_answers_nothing_when_it_is_pasted_as_it_is(asking: Any) -> None:
    for agent in ("choose", "describe", "refund"):
        name = ask(asking, agent)
        shown = asking.runs()[0]["next"]
        assert shown.startswith(f"perdure answer {name} ")
        python = f'perdure() {{ "{sys.executable}" -P -m perdure "$@"; }}'
        pasted = subprocess.run(
            ["bash", "-c", f"{python}\n{shown}"],
            cwd=asking.folder,
            env=asking.environment,
            input="",
            text=True,
            check=False,
        )
        assert pasted.returncode != 0
        assert asking.runs()[0]["next"] == shown


def test_terminal_is_asked_for_the_answer(asking: Any) -> None:
    name = ask(asking, "describe")
    told = typed(asking, ["answer", name], b"Ada\n")
    assert "What is their name?" in told
    assert "answered" in told
    assert asking.python("work.py", "describe").out == "result: Ada\n"


def test_note_is_kept_with_the_answer_for_the_agent(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.agent
        def work() -> str:
            answer = perdure.ask("Ship?", options=["now", "later"])
            return f"{answer.choice} because {answer.note}"

        print(perdure.run(work))
        """,
    )
    place.python("work.py")
    assert place.perdure("answer", "-", "later", "--note", "it rains").code == 0
    assert place.python("work.py").out == "later because it rains\n"


def test_programs_are_told_what_was_answered_and_where_the_run_stands(asking: Any) -> None:
    name = ask(asking, "refund")
    given = asking.perdure("answer", name[:-2], "--value", '{"cents": 5}', "--note", "fair", "--json").json()
    assert (given["question"], given["answer"], given["note"]) == ("How much?", {"cents": 5}, "fair")
    assert (given["still_open"], given["run"]["next"]) == (0, f"perdure resume {name} --app work.py")
    second = asking.perdure("answer", name, "--value", '{"cents": 6}', "--json")
    assert (second.code, second.json()["error"]["code"], second.err) == (2, "answer_refused", "")
