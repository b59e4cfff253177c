"""`perdure diff`: the working state between two steps, and where two runs part."""

from __future__ import annotations

import pytest

from tests.faces.conftest import Place

WORK = """
    @perdure.step
    def fetch(page: int) -> str:
        perdure.current().spent(dollars=0.25)
        return os.environ.get("PAGE", f"page {page}")

    @perdure.step
    def check(plan: str) -> None:
        if plan == "swim":
            raise ValueError("too cold")

    @perdure.agent
    def trip(goal: str) -> str:
        state = perdure.current().state
        state["plan"] = "walk"
        state["draft"] = True
        fetch(0)
        state["seats"] = 2
        fetch(1)
        del state["draft"]
        state["plan"] = state["plan"].upper()
        check(goal if goal == "swim" else state["plan"])
        return state["plan"]

    if __name__ == "__main__":
        print(perdure.run(trip, sys.argv[1]))
"""


@pytest.fixture
def work(place: Place) -> Place:
    place.write("work.py", WORK)
    assert place.python("work.py", "rome").code == 0
    return place


def test_two_steps_show_what_was_added_changed_and_removed(work: Place) -> None:
    shown = work.perdure("diff", "-", "1", "3").out.splitlines()
    assert [line.strip() for line in shown[2:5]] == ["- draft  true", '~ plan   "walk" → "WALK"', "+ seats  2"]
    assert "2 steps between them" in shown[5]
    assert 'fetch(page=1)  → "page 1"' in shown[6]


def test_one_step_is_compared_with_the_last(work: Place) -> None:
    assert work.perdure("diff", "-", "1").out == work.perdure("diff", "-", "1", "3").out


def test_steps_in_the_other_order_show_the_way_back(work: Place) -> None:
    made = work.perdure("diff", "-", "3", "1", "--json").json()
    assert [(each["name"], each["change"]) for each in made["state"]] == [
        ("draft", "added"),
        ("plan", "changed"),
        ("seats", "removed"),
    ]
    assert len(made["steps"]) == 2


@pytest.mark.parametrize(("steps", "words"), [(("1", "9"), "9 is too much"), (("1", "x"), "x is no number of steps")])
def test_a_number_that_is_no_step_is_refused_with_those_that_are(
    work: Place, steps: tuple[str, str], words: str
) -> None:
    refused = work.perdure("diff", "-", *steps)
    assert refused.code == 2
    assert words in refused.err
    assert f"perdure diff {work.name()} 0 3" in refused.err


def test_a_run_alone_is_compared_with_nothing(work: Place) -> None:
    refused = work.perdure("diff", "-")
    assert refused.code == 2
    assert f"perdure diff {work.name()} 0 3" in refused.err


def test_two_runs_show_arguments_results_and_outcomes(work: Place) -> None:
    first = work.name()
    assert work.python("work.py", "swim", PAGE="wet").code == 1
    second = work.name()
    made = work.perdure("diff", first, second, "--json").json()
    assert made["arguments"] == [{"name": "goal", "change": "changed", "before": "rome", "after": "swim"}]
    assert [(each["call"], each["before"], each["after"]) for each in made["results"]] == [
        ("fetch(page=0)", "page 0", "wet"),
        ("fetch(page=1)", "page 1", "wet"),
    ]
    assert made["parting"] == {"number": 3, "before": "check(plan='WALK')", "after": "check(plan='swim')"}
    outcome = {each["name"]: (each.get("before"), each.get("after")) for each in made["outcome"]}
    assert outcome["state"] == ("completed", "failed")
    assert outcome["error"] == (None, "ValueError: too cold")
    shown = work.perdure("diff", first, second).out
    assert "at this step they part" in shown
    assert "- check(plan='WALK')" in shown
    assert "+ check(plan='swim')" in shown


def test_a_fork_alone_is_compared_with_the_run_it_comes_from(work: Place) -> None:
    original = work.name()
    assert work.perdure("fork", original, "--at", "2", "--set", "plan=fly").code == 0
    assert work.perdure("resume", "-", "--app", "work.py").out == '"FLY"\n'
    made = work.perdure("diff", "-", "--json").json()
    assert (made["before"]["run"]["name"], made["after"]["fork_of"]) == (original, f"fork of {original} at step 2")
    assert made["equal"] == 2
    assert made["parting"]["number"] == 3
    assert made["state"] == [{"name": "plan", "change": "changed", "before": "WALK", "after": "FLY"}]


def test_runs_that_are_the_same_part_nowhere(work: Place) -> None:
    original = work.name()
    assert work.perdure("fork", original).code == 0
    assert work.perdure("resume", "-", "--app", "work.py").code == 0
    made = work.perdure("diff", original, work.name(), "--json").json()
    assert (made["equal"], made["parting"], made["results"], made["state"], made["arguments"]) == (3, None, [], [], [])
