"""`perdure approve` and `perdure reject`: a yes or a no where there is one, and never where it would be a guess."""

from __future__ import annotations

from typing import Any

import pytest

APPROVING = """
    def log(line):
        with open("log.txt", "a") as file:
            file.write(line + "\\n")

    @perdure.effect(approve=True)
    def refund(order: str, cents: int) -> str:
        log(f"refund {order} {cents}")
        return f"refunded {cents}"

    @perdure.effect(approve=True)
    def ship(order: str) -> str:
        log(f"ship {order}")
        return f"shipped {order}"

    @perdure.agent
    def desk(order: str) -> str:
        try:
            return refund(order, 4900)
        except perdure.errors.ApprovalDenied as denied:
            return str(denied)

    @perdure.agent
    async def both(order: str) -> str:
        import asyncio

        async def one() -> str:
            return refund(order, 1)

        async def two() -> str:
            return ship(order)

        return " and ".join(await asyncio.gather(asyncio.to_thread(refund, order, 1), asyncio.to_thread(ship, order)))

    OPTIONS = {
        "plain": ["yes", "no"],
        "turned": ["Reject", "Approve"],
        "verbs": ["send", "discard"],
        "twice_yes": ["yes", "ok"],
        "three": ["yes", "no", "later"],
    }

    @perdure.agent
    def choose(kind: str) -> str:
        answer = perdure.ask(f"Go on ({kind})?", options=OPTIONS.get(kind))
        return f"{answer.choice}{answer.value or ''} {answer.note}".strip()

    if __name__ == "__main__":
        print("result:", perdure.run(globals()[sys.argv[1]], sys.argv[2]))
"""


@pytest.fixture
def desk(place: Any) -> Any:
    place.write("work.py", APPROVING)
    return place


def asking(place: Any, agent: str, argument: str) -> str:
    """Run an agent until it asks; the run's name."""
    assert place.python("work.py", agent, argument).code == 3
    return str(place.name())


def test_approved_effect_is_performed_once(desk: Any) -> None:
    name = asking(desk, "desk", "A-17")
    approve, reject = f"perdure approve {name}", f"perdure reject {name}"
    assert desk.runs()[0]["next"] == f"{approve} (or: {reject})"
    result = desk.perdure("approve", name, "--by", "Ada")
    assert result.code == 0, result
    assert f"{name}  work.desk asks\n  1 Perform refund(order='A-17', cents=4900)?\n" in result.out
    assert f"  approved by Ada\n  next: perdure resume {name} --app work.py\n" in result.out
    assert desk.lines("log.txt") == []
    assert desk.python("work.py", "desk", "A-17").out == "result: refunded 4900\n"
    assert desk.lines("log.txt") == ["refund A-17 4900"]


def test_rejected_effect_is_not_performed_and_the_agent_learns_why(desk: Any) -> None:
    name = asking(desk, "desk", "A-17")
    result = desk.perdure("reject", name, "--by", "Ada", "--note", "too much")
    assert "  rejected by Ada: too much\n" in result.out, result
    told = desk.python("work.py", "desk", "A-17").out
    assert told == "result: refund(order='A-17', cents=4900) was not approved by Ada: too much\n"
    assert "answered: deny (by Ada): too much" in desk.perdure("show", name).out
    assert desk.lines("log.txt") == []


def test_second_word_is_refused(desk: Any) -> None:
    name = asking(desk, "desk", "A-17")
    assert desk.perdure("reject", name).code == 0
    second = desk.perdure("approve", name)
    assert second.code == 2, second
    assert "the first answer counts" in second.err
    desk.python("work.py", "desk", "A-17")
    late = desk.perdure("approve", name)
    assert late.code == 2, late
    assert f"Run {name} has no open question: it is completed." in late.err


def test_several_approvals_are_told_apart_by_step_or_question(desk: Any) -> None:
    name = asking(desk, "both", "A-17")
    unclear = desk.perdure("approve", name)
    assert unclear.code == 2, unclear
    assert f"Run {name} has 2 open questions (1: Perform " in unclear.err
    assert f"do: perdure approve {name} --question 1\n" in unclear.err
    assert "no open questions like that" in desk.perdure("approve", name, "charge").err
    assert desk.perdure("approve", name, "refund").code == 0
    left = desk.perdure("inbox", "--json").json()["questions"]
    assert [asked["text"] for asked in left] == ["Perform ship(order='A-17')?"]
    assert left[0]["approve"] == f"perdure approve {name} --question {left[0]['number']}"
    assert desk.perdure("approve", name, "--question", "ship").code == 0
    assert desk.python("work.py", "both", "A-17").out == "result: refunded 1 and shipped A-17\n"


@pytest.mark.parametrize(("kind", "yes", "no"), [("plain", "yes", "no"), ("turned", "Approve", "Reject")])
def test_question_with_a_yes_and_a_no_is_approved_or_rejected(desk: Any, kind: str, yes: str, no: str) -> None:
    for verb, choice in (("approve", yes), ("reject", no)):
        name = asking(desk, "choose", kind)
        given = desk.perdure(verb, name, "--note", "because", "--json").json()
        assert (given["answer"], given["note"], given["run"]["name"]) == (choice, "because", name)
        assert desk.python("work.py", "choose", kind).out == f"result: {choice} because\n"


@pytest.mark.parametrize("kind", ["verbs", "twice_yes", "three", "free"])
def test_question_without_a_plain_yes_and_no_is_never_guessed(desk: Any, kind: str) -> None:
    name = asking(desk, "choose", kind)
    shown = desk.runs()[0]["next"]
    assert shown.startswith(f"perdure answer {name} <")
    for verb in ("approve", "reject"):
        result = desk.perdure(verb, name)
        assert result.code == 2, result
        assert f"'Go on ({kind})?' of run {name} expects " in result.err
        assert result.err.endswith(f"do: {shown}\n")
        assert len(result.err.splitlines()) == 3
    assert desk.perdure("inbox", "--json").json()["questions"][0]["approve"] == ""


def test_run_that_needs_something_else_says_what(agent: Any) -> None:
    agent.python("work.py", "1", KILL="send")
    agent.python("work.py", "1")
    result = agent.perdure("approve", "-")
    assert result.code == 2, result
    assert "has no open question: it is waiting: in doubt." in result.err
    assert f"do: perdure settle {agent.name()} send" in result.err
