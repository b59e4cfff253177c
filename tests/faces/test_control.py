"""`perdure cancel`, `pause`, `unpause`, and how the list and the timeline show what runs say of themselves."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from tests.faces.terminal import typed
from tests.faces.waiting import ASKING, LEFT

HELD = """
    @perdure.step
    def tick(number: int) -> int:
        return number

    @perdure.agent
    def work() -> str:
        tick(0)
        print("ready", flush=True)
        number = 0
        while True:
            number = tick(number + 1)
            time.sleep(0.05)

    if __name__ == "__main__":
        try:
            perdure.run(work)
        except perdure.errors.RunCancelled:
            print("cancelled")
"""


@pytest.fixture
def asking(place: Any) -> Any:
    place.write("work.py", ASKING)
    return place


def test_run_nobody_holds_is_cancelled_at_once(asking: Any) -> None:
    asking.python("work.py", "choose")
    name = asking.name()
    result = asking.perdure("cancel", name, "--yes", "--by", "Ada")
    assert result.code == 0, result
    assert f"{name}  cancelled; what its 1 completed step did stands\n" in result.out
    assert f"  next: perdure show {name} (it cannot be resumed)\n" in result.out
    assert asking.runs()[0]["state"] == "cancelled"
    again = asking.perdure("cancel", name)
    assert again.code == 2, again
    assert f"Run {name} is cancelled: it hears nothing any more." in again.err


def test_children_end_with_their_parent(asking: Any) -> None:
    asking.python("-c", LEFT, "parent", "RunEnded", "child")
    parent = next(run for run in asking.runs() if run["agent"] == "work.parent")
    assert asking.perdure("cancel", parent["name"], "--yes").code == 0
    assert {run["state"] for run in asking.runs()} == {"cancelled"}


def test_held_run_ends_at_its_next_step(place: Any) -> None:
    place.write("work.py", HELD)
    process = place.start("work.py")
    result = place.perdure("cancel", "-", "--yes")
    assert result.code == 0, result
    assert f"asked to end at its next step: held by pid {process.pid} on" in result.out.replace("\n  ", " ")
    assert process.wait(60) in (0, 1)
    assert place.runs()[0]["state"] == "cancelled"


def test_held_run_stops_when_paused_and_stays_so_until_unpaused(place: Any) -> None:
    place.write("work.py", HELD)
    process = place.start("work.py")
    name = place.name()
    result = place.perdure("pause", name, "--by", "Ada")
    assert result.code == 0, result
    assert f"{name}  stops at its next step, held by pid {process.pid} on" in result.out
    assert f"  next: perdure unpause {name}\n" in result.out
    assert process.wait(60) == 5
    run = place.runs()[0]
    assert (run["state"], run["reason"], run["next"]) == ("waiting", "parked", f"perdure unpause {name}")
    assert "paused by Ada" in run["cause"]
    steps = run["steps"]
    assert place.python("work.py").code == 5
    assert place.runs()[0]["steps"] == steps
    assert f"next: perdure resume {name} --app work.py" in place.perdure("unpause", name).out
    assert place.runs()[0]["next"] == f"perdure resume {name} --app work.py"


def test_waiting_run_that_is_paused_does_not_go_on_when_answered(asking: Any) -> None:
    asking.python("work.py", "choose")
    name = asking.name()
    assert f"{name}  paused; 1 completed step kept\n" in asking.perdure("pause", name).out
    assert "is paused already" in asking.perdure("pause", name).out
    answered = asking.perdure("answer", name, "send")
    assert f"  next: perdure unpause {name}\n" in answered.out, answered
    assert asking.python("work.py", "choose").code == 5
    assert asking.lines("log.txt") == ["research"]
    assert asking.perdure("unpause", name).code == 0
    assert "is not paused" in asking.perdure("unpause", name).out
    assert asking.python("work.py", "choose").out == "result: sent to ada\n"


def test_unpausing_a_finished_run_is_refused(asking: Any) -> None:
    asking.python("work.py", "choose")
    asking.perdure("cancel", "-", "--yes")
    for command in ("pause", "unpause"):
        result = asking.perdure(command, "-")
        assert result.code == 2, result
        assert "it hears nothing any more" in result.err


def test_list_shows_reason_progress_and_tags_and_filters_by_tag(asking: Any) -> None:
    asking.python("work.py", "choose")
    asking.python("work.py", "listen")
    name = asking.name()
    shown = asking.perdure("ls").out
    assert re.search(rf"^{name} +work.listen +waiting: signal +0 ", shown, re.MULTILINE), shown
    assert "  progress 2/5 listening   team=billing\n" in shown
    assert "  waits for the signal 'go'\n" in shown
    only = asking.perdure("ls", "--tag", "team=billing", "--json").json()["runs"]
    assert [run["name"] for run in only] == [name]
    assert only[0]["tags"] == {"team": "billing"}
    assert only[0]["progress"] == {"done": 2, "total": 5, "text": "listening"}
    assert "has tag team=sales." in asking.perdure("ls", "--tag", "team=sales").out
    assert asking.perdure("ls", "--tag", "team=billing", "--tag", "env=x", "--json").json()["runs"] == []
    for arguments in (["--tag", "team"], ["--tag", "=x"]):
        result = asking.perdure("ls", *arguments)
        assert result.code == 2, result
        assert len(result.err.splitlines()) == 3, result


def test_timeline_tells_waits_answers_notes_children_and_parents(asking: Any) -> None:
    asking.python("-c", LEFT, "parent", "RunEnded", "child")
    runs = {run["agent"]: run["name"] for run in asking.runs()}
    parent, child = runs["work.parent"], runs["work.choose"]
    told = asking.perdure("show", parent).out
    assert re.search(rf"1 .+ ◦ start work.choose  child run {child}, waiting: human", told), told
    assert f"waits for its child run {child} (work.choose), waiting: human" in told
    assert f"next: perdure answer {child} <send|discard>\n" in told
    below = asking.perdure("show", child).out
    assert f"  child of {parent} (work.parent)\n" in below
    assert re.search(r"2 .+ ◦ ask  Send this\? \(for lead\); until 20\d\d-", below), below
    asking.perdure("answer", child, "send", "--by", "Ada")
    assert "answered by Ada; a resume takes it up" in asking.perdure("show", child).out
    asking.python("work.py", "parent")
    assert re.search(rf"1 .+ ✔ start work.choose  child run {child}, completed", asking.perdure("show", parent).out)
    asking.python("work.py", "listen")
    assert "· progress: 2/5 listening\n" in asking.perdure("show", "-").out


def test_run_that_went_on_as_another_names_it(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.agent
        def work(left: int) -> str:
            if left:
                perdure.restart_with(left - 1)
            return perdure.ask("More?").value

        perdure.run(work, 1)
        """,
    )
    place.python("work.py")
    new, old = place.runs()
    assert old["cause"] == f"goes on as {new['name']}"
    assert f"goes on as {new['name']}" in place.perdure("show", old["name"]).out
    answered = place.perdure("answer", old["name"], "no")
    assert answered.code == 0, answered
    assert f"{new['name']}  work.work asks\n" in answered.out


def test_child_that_is_parked_is_resumed_by_its_own_name(asking: Any) -> None:
    asking.python("-c", LEFT, "parent", "RunEnded", "child")
    child = next(run["name"] for run in asking.runs() if run["agent"] == "work.choose")
    asking.perdure("answer", child, "send")
    asking.write("work.py", ASKING.replace("research", "look_up"))
    asking.perdure("resume", child, "--app", "work.py")
    parked = next(run for run in asking.runs() if run["name"] == child)
    assert (parked["state"], parked["reason"]) == ("waiting", "parked")
    assert parked["next"] == f"perdure resume {child} --app work.py"


def test_cancelling_needs_a_word_of_a_person(asking: Any) -> None:
    asking.python("work.py", "choose")
    name = asking.name()
    for more in ([], ["--json"]):
        result = asking.perdure("cancel", name, *more)
        assert result.code == 2, result
        assert f"Cancel {name} for good needs your word, and nobody can be asked here." in result.out + result.err
        assert f"perdure cancel {name}{' --json' if more else ''} --yes" in result.out + result.err
    assert asking.runs()[0]["state"] == "waiting"
    said = typed(asking, ["cancel", name], b"n\n", code=2)
    assert f"Cancel {name} for good?" in said
    assert asking.runs()[0]["state"] == "waiting"
    assert "cancelled; what its 1 completed step did stands" in typed(asking, ["cancel", name], b"y\n")
    assert asking.runs()[0]["state"] == "cancelled"


def test_coding_agent_is_never_asked(asking: Any) -> None:
    asking.python("work.py", "choose")
    for variable in ("AI_AGENT", "CLAUDECODE"):
        asking.environment[variable] = "1"
        assert "nobody can be asked here" in typed(asking, ["cancel", "-"], b"y\n", code=2)
        assert "there is no terminal to ask on" in typed(asking, ["answer", "-"], b"send\n", code=2)
        del asking.environment[variable]
    assert asking.runs()[0]["state"] == "waiting"


def test_programs_are_told_what_was_asked_and_where_the_run_stands(asking: Any) -> None:
    asking.python("work.py", "choose")
    name = asking.name()
    paused = asking.perdure("pause", name[:-2], "--json").json()
    assert (paused["asked"], paused["is_done"], paused["run"]["next"]) == ("pause", True, f"perdure unpause {name}")
    assert asking.perdure("unpause", "-", "--json").json()["run"]["next"] == f"perdure answer {name} <send|discard>"
    ended = asking.perdure("cancel", "-", "--yes", "--json").json()
    assert (ended["asked"], ended["is_done"], ended["run"]["state"]) == ("cancel", True, "cancelled")
    again = asking.perdure("cancel", "-", "--yes", "--json")
    assert (again.code, again.json()["error"]["exit_code"], again.err) == (2, 2, "")


def test_program_is_told_that_a_held_run_has_still_to_end(place: Any) -> None:
    place.write("work.py", HELD)
    process = place.start("work.py")
    asked = place.perdure("cancel", "-", "--yes", "--json").json()
    assert (asked["is_done"], asked["run"]["state"]) in ((False, "running"), (True, "cancelled"))
    process.wait(60)
    assert place.runs()[0]["state"] == "cancelled"


@pytest.fixture
def doubt(agent: Any) -> Any:
    """A run of work.py that was killed while it sent its mail."""
    assert agent.python("work.py", "2", KILL="send").code == -signal.SIGKILL
    return agent


def test_cancelling_a_run_in_doubt_names_the_effect_before_and_after_and_keeps_it_findable(doubt: Any) -> None:
    name, send = doubt.name(), "send(to='ada@example.com')"
    refused = doubt.perdure("cancel", name)
    assert refused.code == 2, refused
    assert f"Cancel {name} for good, and leave {send} in doubt needs your word" in refused.err
    done = doubt.perdure("cancel", name, "--yes")
    assert done.code == 0, done
    assert f"  in doubt  {send}: it may have happened" in done.out
    run = doubt.runs()[0]
    assert (run["state"], run["cause"]) == ("cancelled", f"{send} is in doubt: it may have happened")
    assert f"{send} is in doubt: it may have happened" in doubt.perdure("show", name).out
    again = doubt.python("work.py", "2")
    assert (
        f"perdure: {name} was cancelled with {send} in doubt: it may have happened (perdure show {name})" in again.err
    )
    assert (
        f"{name} was cancelled with {send} in doubt" not in doubt.python("work.py", "2").err
    )  # that one is the newest


def test_programs_are_told_what_a_cancelled_run_leaves_in_doubt(doubt: Any) -> None:
    told = doubt.perdure("cancel", "-", "--yes", "--json").json()
    assert told["in_doubt"] == ["send(to='ada@example.com')"]


def test_what_a_cancelled_run_left_in_doubt_can_be_settled_for_the_record(doubt: Any) -> None:
    doubt.perdure("cancel", "-", "--yes")
    assert doubt.runs()[0]["next"].startswith(f"perdure settle {doubt.name()} send ")
    settled = doubt.perdure("settle", "-", "send", "--happened")
    assert settled.code == 0, settled
    assert "then: nothing: the run is over, and the verdict is kept with it" in settled.out
    assert "resume" not in settled.out
    run = doubt.runs()[0]
    assert (run["cause"], run["next"]) == ("", "")
    assert "in doubt" not in doubt.python("work.py", "2").err
