"""`perdure step`: all that is known of one step."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest


@pytest.fixture
def worked(place: Any) -> Any:
    """A folder with a run whose one step failed once, and whose effect was killed, settled and done again."""
    place.write("work.py", WORK)
    place.python("work.py", KILL="mail")
    place.python("work.py")
    return place


def test_failed_attempt_is_told_with_its_trace_and_the_one_that_succeeded(worked: Any) -> None:
    shown = worked.perdure("step", "-", "1").out
    assert re.search(rf"^{worked.name()}  step 1 of 4  flaky +step, done\n", shown), shown
    assert re.search(r"attempt 1  \S+ \S+ UTC  failed after \d+\.\d s  \(pid \d+ on \S+\)\n +OSError: no line\n", shown)
    assert re.search(r'File ".+work.py", line \d+, in flaky\n', shown), shown
    assert "/perdure/engine/" not in shown
    assert "/perdure/engine/" in worked.perdure("step", "-", "1", "--full").out
    assert re.search(r"attempt 2  .+  done after \d+\.\d s", shown), shown
    assert "  cost       $0.0020, 7 tokens\n" in shown
    assert shown.endswith('  result     {"lines":["a","b"]}\n')
    told = worked.perdure("step", "-", "flaky", "--json").json()
    assert [(each["attempt"], each["outcome"]) for each in told["attempts"]] == [(1, "failed"), (2, "done")]
    assert told["attempts"][0]["error"]["type"] == "OSError"
    assert (told["result"], told["dollars"], told["state"]) == ({"lines": ["a", "b"]}, 0.002, "done")


def test_effect_tells_key_arguments_intent_doubt_verdict_and_receipt(worked: Any) -> None:
    name = worked.name()
    doubtful = worked.perdure("step", name, "mail").out
    assert re.search(r"  effect key [0-9a-f]{32}\n  arguments  \{\"to\":\"ada\"\}\n", doubtful), doubtful
    assert re.search(r"attempt 1  .+ intent recorded  \(pid \d+ on \S+\)\n  in doubt   its process died\n", doubtful)
    settle = f"next: perdure settle {name} mail <--happened [JSON] | --did-not-happen>\n"
    assert doubtful.endswith(settle)
    worked.perdure("settle", name, "mail", "--did-not-happen", "--by", "Ada")
    unheard = worked.perdure("step", name, "mail").out
    assert re.search(r"evidence   .+  it did not happen, by Ada; the run has not heard it yet\n", unheard), unheard
    worked.python("work.py")
    done = worked.perdure("step", name, "mail").out
    assert re.search(r"verdict    .+  it did not happen, by Ada\n", done), done
    assert re.search(r"attempt 2  .+  done after \d+\.\d s", done), done
    assert done.endswith('  result     "sent to ada"\n')
    told = worked.perdure("step", name, "mail", "--json").json()
    outcomes = [(each["attempt"], each["outcome"]) for each in told["attempts"]]
    assert outcomes == [(1, "started"), (2, "started"), (2, "done")]
    assert told["verdict"]["outcome"] == "did_not_happen"
    assert told["attempts"][0]["pid"] != told["attempts"][1]["pid"]
    assert told["arguments"] == {"to": "ada"}


def test_large_result_is_loaded_and_whole_where_no_terminal_must_be_fitted(worked: Any) -> None:
    shown = worked.perdure("step", "-", "large").out
    assert shown.count("x" * 100) == 1000
    assert worked.perdure("step", "-", "large", "--json").json()["result"] == ["x" * 100] * 1000


def test_items_of_a_map_are_told(worked: Any) -> None:
    shown = worked.perdure("step", "-", "map(double)").out
    assert "  items      30 items done, 1 failed\n" in shown
    assert "  [3]        6\n" in shown
    assert "… 10 more: --full\n" in shown
    assert "  [29]       58\n" in worked.perdure("step", "-", "map(double)", "--full").out
    told = worked.perdure("step", "-", "map(double)", "--json", "--full").json()["items"]
    assert (told["count"], told["failed"], told["first"][13], told["first"][29]) == (30, 1, None, 58)


def test_step_is_found_by_number_name_or_key(worked: Any) -> None:
    told = [worked.perdure("step", "-", wanted, "--json").json()["key"] for wanted in ("4", "mail", "main.3")]
    assert told == ["main.3"] * 3


@pytest.mark.parametrize(
    ("wanted", "said", "hint"),
    [
        ("9", "There is no step '9' in run {}: it has 4 steps.", "perdure show {} numbers them"),
        ("0", "There is no step '0' in run {}: it has 4 steps.", "perdure show {} numbers them"),
        ("flakey", "There is no step 'flakey' in run {}: it has 4 steps.", "did you mean flaky? perdure show {}"),
    ],
)
def test_step_that_is_not_there_is_refused_with_what_is(worked: Any, wanted: str, said: str, hint: str) -> None:
    name = worked.name()
    result = worked.perdure("step", "-", wanted)
    assert result.code == 2, result
    assert said.format(name) in result.err
    assert f"do: {hint.format(name)}" in result.err
    told = json.loads(worked.perdure("step", "-", wanted, "--json").out)
    assert told["error"]["message"] == said.format(name)


def test_name_of_several_steps_is_refused_with_their_numbers(agent: Any) -> None:
    agent.python("work.py", "8")
    result = agent.perdure("step", "-", "fetch")
    assert result.code == 2, result
    assert "8 steps of" in result.err
    assert "are named fetch: 1, 2, 3, 4, 5 and 3 more." in result.err
    assert f"do: perdure step {agent.name()} 1\n" in result.err


def test_wait_tells_the_question_and_the_answer(place: Any) -> None:
    place.write("work.py", ASKS)
    place.python("work.py")
    name = place.name()
    waiting = place.perdure("step", name, "1").out
    assert "wait, waiting\n" in waiting
    assert "Ship it?" in waiting
    assert f"next: perdure approve {name} (or: perdure reject {name})\n" in waiting
    place.perdure("answer", name, "yes", "--by", "Ada")
    place.python("work.py")
    told = place.perdure("step", name, "1", "--json").json()
    assert (told["state"], told["by"], told["question"]["options"]) == ("done", "Ada", ["yes", "no"])
    assert "answered: yes (by Ada)" in place.perdure("step", name, "1").out


WORK = """
    @perdure.step(retry=perdure.Retry(attempts=2, delay_seconds=0))
    def flaky() -> dict[str, list[str]]:
        if perdure.current().attempt == 1:
            raise OSError("no line")
        perdure.current().spent(dollars=0.002, tokens=7)
        return {"lines": ["a", "b"]}

    @perdure.step
    def large() -> list[str]:
        return ["x" * 100] * 1000

    @perdure.step
    def double(n: int) -> int:
        if n == 13:
            raise ValueError(n)
        return 2 * n

    @perdure.effect
    def mail(to: str) -> str:
        if os.environ.get("KILL") == "mail":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"sent to {to}"

    @perdure.agent
    def work() -> str:
        flaky()
        large()
        list(perdure.map(double, range(30), on_error="collect"))
        return mail("ada")

    if __name__ == "__main__":
        perdure.run(work)
"""

ASKS = """
    @perdure.agent
    def work() -> str:
        return perdure.ask("Ship it?", options=["yes", "no"]).choice

    if __name__ == "__main__":
        perdure.run(work)
"""
