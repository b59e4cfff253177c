"""`perdure fork`: the effects it repeats are named first, the other run stays as it is, the fork can be resumed."""

from __future__ import annotations

import signal

import pytest

from tests.faces.conftest import Place
from tests.faces.terminal import typed
from tests.faces.waiting import ASKING

STATEFUL = """
    @perdure.step
    def fetch(page: int) -> str:
        return f"page {page}"

    @perdure.effect
    def send(to: str) -> str:
        with open("log.txt", "a") as file:
            file.write(f"send {to}\\n")
        return f"sent to {to}"

    @perdure.agent
    def report(pages: int, to: str = "ada") -> str:
        state = perdure.current().state
        state["plan"] = "walk"
        for page in range(pages):
            fetch(page)
        send(to)
        return state["plan"]

    if __name__ == "__main__":
        print("result:", perdure.run(report, int(sys.argv[1])))
"""


@pytest.fixture
def work(place: Place) -> Place:
    """A folder with `work.py`, and a completed run of three steps."""
    place.write("work.py", STATEFUL)
    assert place.python("work.py", "2").code == 0
    return place


def test_fork_that_repeats_effects_needs_a_word_and_names_them(work: Place) -> None:
    refused = work.perdure("fork", work.name(), "--at", "1")
    assert refused.code == 2
    assert "send(to='ada')" in refused.out
    assert "send(to='ada')" in refused.err
    assert refused.err.splitlines()[-1].endswith("--at 1 --yes")
    assert len(work.runs()) == 1


def test_fork_asks_on_a_terminal_and_no_forks_nothing(work: Place) -> None:
    name = work.name()
    shown = typed(work, ["fork", name, "--at", "1"], b"n\n", code=2)
    assert f"Fork {name} at step 1?" in shown
    assert len(work.runs()) == 1
    typed(work, ["fork", name, "--at", "1"], b"y\n")
    assert len(work.runs()) == 2


def test_fork_of_a_run_whose_effects_were_taken_back_asks_although_it_repeats_none(work: Place) -> None:
    source = (work.folder / "work.py").read_text()
    (work.folder / "work.py").write_text(source.replace("@perdure.effect", "@perdure.effect(undo=lambda *_: None)"))
    name = work.name()
    assert work.perdure("undo", name, "--app", "work.py", "--yes").code == 0
    refused = work.perdure("fork", name)
    assert refused.code == 2
    assert "effects were taken back since" in refused.err
    assert work.perdure("fork", name, "--at", "2", "--yes").code == 0


def test_fork_that_repeats_no_effect_asks_nobody(work: Place) -> None:
    original = work.name()
    made = work.perdure("fork", original, "--at", "3")
    assert made.code == 0, made
    assert f"fork of {original} at step 3 of 3" in made.out
    assert work.perdure("resume", "-", "--app", "work.py").out == '"walk"\n'
    assert work.lines("log.txt") == ["send ada"]


def test_fork_says_how_to_go_on_and_show_says_where_it_comes_from(work: Place) -> None:
    original = work.name()
    made = work.perdure("fork", original, "--at", "2", "--yes")
    name = work.name()
    assert made.out.splitlines()[-1] == f"next: perdure resume {name} --app work.py"
    shown = work.perdure("show", name).out
    assert f"fork of {original} at step 2" in shown
    assert "+-" not in shown
    listed = work.runs()[0]
    assert (listed["state"], listed["steps"]) == ("queued", 2)
    assert listed["cause"] == f"fork of {original} at step 2, not begun"


def test_set_changes_the_working_state_of_the_fork(work: Place) -> None:
    made = work.perdure("fork", "-", "--at", "2", "--set", "plan=train", "--yes")
    assert 'plan = "train", right after step 2' in made.out
    assert work.perdure("resume", "-", "--app", "work.py").out == '"train"\n'
    checkpoint = work.perdure("show", work.name(), "--checkpoint", "--at", "2").json()
    assert checkpoint["working_state"]["plan"] == "train"


def test_set_replaces_an_argument_that_the_run_has(work: Place) -> None:
    made = work.perdure("fork", "-", "--at", "0", "--set", "pages=1", "--set", "to=bob", "--yes")
    assert "argument   pages = 1" in made.out
    assert 'argument   to = "bob"' in made.out
    assert "will park it" not in made.out
    assert work.perdure("resume", "-", "--app", "work.py").code == 0
    assert work.lines("log.txt") == ["send ada", "send bob"]
    assert work.runs()[0]["steps"] == 2


def test_set_of_an_argument_after_the_beginning_says_that_steps_may_park(work: Place) -> None:
    made = work.perdure("fork", "-", "--at", "1", "--set", "pages=1", "--yes")
    assert "steps recorded with other arguments will park it; --at 0" in made.out


@pytest.mark.parametrize("text", ["plan", "=5", ""])
def test_set_without_a_name_or_a_value_is_refused(work: Place, text: str) -> None:
    refused = work.perdure("fork", "-", "--set", text)
    assert refused.code == 2
    assert "--set plan=train" in refused.err
    assert len(work.runs()) == 1


def test_fork_at_a_step_that_is_not_there_names_those_that_are(work: Place) -> None:
    refused = work.perdure("fork", "-", "--at", "7")
    assert refused.code == 2
    assert "has not completed 7 steps: it has completed 3" in refused.err
    assert "--at 0 to --at 3" in refused.err


def test_json_tells_all_that_is_shown(work: Place) -> None:
    original = work.runs()[0]
    made = work.perdure("fork", "-", "--at", "1", "--set", "plan=[1, 2]", "--yes", "--json").json()
    assert made["forked_from"] == {"run_id": original["run_id"], "name": original["name"], "at": 1}
    assert made["repeated"] == [{"number": 3, "name": "send", "call": "send(to='ada')", "kind": "effect"}]
    assert (made["state"], made["arguments"], made["run"]["state"]) == (["plan"], [], "queued")
    refused = work.perdure("fork", original["run_id"], "--at", "1", "--json").json()
    assert "send(to='ada')" in refused["error"]["message"]


def test_a_run_in_doubt_gives_its_fork_the_doubt(agent: Place) -> None:
    assert agent.python("work.py", "1", KILL="send").code == -signal.SIGKILL
    made = agent.perdure("fork", agent.name())
    assert made.code == 0, made
    assert "in doubt   send(to='ada@example.com'), as in" in made.out
    resumed = agent.perdure("resume", "-", "--app", "work.py")
    assert resumed.code == 4, resumed
    assert agent.lines("log.txt") == ["fetch 0", "send ada@example.com"]


def test_the_question_of_a_waiting_run_is_asked_by_its_fork(place: Place) -> None:
    place.write("asking.py", ASKING)
    assert place.python("asking.py", "choose").code == 3
    original = place.name()
    made = place.perdure("fork", original)
    assert made.code == 0, made
    assert "asks anew  Send this?" in made.out
    assert f"{original} is unfinished" in made.out
    forked = place.name()
    assert place.perdure("resume", forked, "--app", "asking.py").code == 3
    assert place.perdure("answer", forked, "discard").code == 0
    assert "discarded by" in place.perdure("resume", forked, "--app", "asking.py").out
    assert place.lines("log.txt") == ["research"]


def test_a_damaged_run_is_refused_with_the_way_to_repair_it(work: Place) -> None:
    name = work.name()
    work.python("-c", "import apsw; apsw.Connection('.perdure/perdure.db').pragma('wal_checkpoint', 'TRUNCATE')")
    content = work.database.read_bytes()
    assert b"page 1" in content
    work.database.write_bytes(content.replace(b"page 1", b"page 9"))
    refused = work.perdure("fork", name, "--at", "1", "--yes")
    assert refused.code in (5, 6), refused
    assert f"perdure repair {name}" in refused.err
