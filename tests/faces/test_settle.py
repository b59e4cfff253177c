"""`perdure settle`: what a person says about an effect in doubt is recorded once and acted on once."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest

AT_ONCE = """
import pathlib, sys
from perdure.cli import main
from perdure.store.sqlite import SqliteStore

post = SqliteStore.post

def held(store, mail, **options):
    print("looked", flush=True)
    pathlib.Path(mail.by).read_text()  # a pipe, which nobody has opened yet
    return post(store, mail, **options)

SqliteStore.post = held
sys.exit(main(["settle", *sys.argv[1:]]))
"""


@pytest.fixture
def doubt(agent: Any) -> Any:
    """A run of work.py that was killed while it sent its mail, and has found out that it is in doubt."""
    assert agent.python("work.py", "2", KILL="send").code == -signal.SIGKILL
    assert agent.python("work.py", "2").code == 4
    return agent


def sent(place: Any) -> int:
    count: int = place.lines("log.txt").count("send ada@example.com")
    return count


def test_happened_with_its_result_goes_on_without_doing_it_again(doubt: Any) -> None:
    name = doubt.name()
    result = doubt.perdure("settle", name, "send", "--happened", '"sent by hand"')
    assert result.code == 0, result
    assert f'{name}  3 send: it happened, result "sent by hand" (by ' in result.out
    assert "  then: a resume takes that for its result and goes on; it is not performed again\n" in result.out
    assert f"next: perdure resume {name} --app work.py" in result.out
    assert "settled by" in doubt.perdure("show").out
    assert doubt.python("work.py", "2").out == "result: sent by hand\n"
    assert sent(doubt) == 1


def test_did_not_happen_performs_it_once_more(doubt: Any) -> None:
    settled = doubt.perdure("settle", "-", "3", "--did-not-happen")
    assert settled.code == 0, settled
    assert "  then: a resume performs it, and goes on\n" in settled.out
    result = doubt.perdure("resume", "--app", "work.py")
    assert result.code == 0, result
    assert "says: it did not happen. Doing it." in result.err
    assert sent(doubt) == 2


def test_fail_ends_the_run_there(doubt: Any) -> None:
    settled = doubt.perdure("settle", "-", "send", "--fail")
    assert settled.code == 0, settled
    assert "  then: a resume ends the run there, as failed\n" in settled.out
    result = doubt.perdure("resume", "--app", "work.py")
    assert result.code == 1, result
    assert "was settled as failed by" in result.err
    assert sent(doubt) == 1


def test_run_nobody_looked_at_since_the_kill_can_be_settled(agent: Any) -> None:
    agent.python("work.py", "2", KILL="send")
    assert agent.perdure("settle", "-", "send", "--happened", '"early"').code == 0
    assert agent.python("work.py", "2").out == "result: early\n"


def test_same_verdict_again_adds_nothing_and_another_replaces_it(doubt: Any) -> None:
    doubt.perdure("settle", "-", "send", "--did-not-happen")
    again = doubt.perdure("settle", "-", "send", "--did-not-happen")
    assert again.code == 0, again
    assert "was already settled like that by" in again.out
    refused = doubt.perdure("settle", "-", "send", "--happened", '"after all"', "--by", "bob")
    assert refused.code == 2, refused
    assert re.search(r"Replace the unused verdict of \S+ \(did not happen\) by: happened", refused.err)
    other = doubt.perdure("settle", "-", "send", "--happened", '"after all"', "--yes")
    assert other.code == 0, other
    assert "the earlier verdict (did not happen, by " in other.out
    assert "the newest counts" in other.out
    assert doubt.python("work.py", "2").out == "result: after all\n"
    assert sent(doubt) == 1


def test_of_two_who_settle_at_once_the_second_is_told(doubt: Any) -> None:
    """Both look before either writes."""
    for name in ("ada", "bob"):
        os.mkfifo(doubt.folder / name)
    first = doubt.start("-c", AT_ONCE, doubt.name(), "--happened", "--by", "ada", until="looked")
    second = doubt.start("-c", AT_ONCE, doubt.name(), "--did-not-happen", "--by", "bob", until="looked")
    said = {}
    for process, name in ((first, "ada"), (second, "bob")):
        (doubt.folder / name).write_text("go")
        out, err = process.communicate(timeout=60)
        said[name] = (process.returncode, out + err)
    assert (said["ada"][0], said["bob"][0]) == (0, 2), said
    assert "was settled in this very moment: happened, by ada." in said["bob"][1]
    assert doubt.perdure("show").out.count("a verdict by bob came second or too late, and was not used") == 1
    assert doubt.perdure("resume", "-", "--app", "work.py").code == 4  # null does not fit; nothing is sent
    assert sent(doubt) == 1


def test_a_run_that_was_settled_as_failed_is_forked_and_not_resumed_for_ever(doubt: Any) -> None:
    name = doubt.name()
    doubt.perdure("settle", "-", "send", "--fail")
    failed = doubt.perdure("resume", "-", "--app", "work.py")
    assert f"perdure fork {name} performs it again; or start over: perdure run --fresh" in failed.err
    run = doubt.runs()[0]
    assert (run["state"], run["next"]) == ("failed", f"perdure fork {name}")
    refused = doubt.perdure("fork", name)
    assert refused.code == 2, refused
    assert "send(to='ada@example.com')" in refused.err  # it may have happened, so it is named and asked
    assert doubt.perdure("fork", name, "--yes").code == 0
    assert doubt.perdure("resume", "-", "--app", "work.py").code == 0
    assert sent(doubt) == 2


def test_result_that_does_not_fit_leaves_it_in_doubt_and_says_so(doubt: Any) -> None:
    doubt.perdure("settle", "-", "send", "--happened")
    result = doubt.perdure("resume", "--app", "work.py")
    assert result.code == 4, result
    assert "the result given with the verdict does not fit" in result.err
    shown = doubt.perdure("show").out
    assert "does not fit" in shown
    assert f"next: perdure settle {doubt.name()} send" in shown
    assert doubt.perdure("settle", "-", "send", "--happened", '"now it fits"').code == 0
    assert doubt.python("work.py", "2").out == "result: now it fits\n"


def test_wrong_input_is_refused_and_nothing_recorded(doubt: Any) -> None:
    for arguments, said in (
        (["send", "--happened", "{not json"], "is not JSON"),
        (["send", "--happened", "sent"], """--happened '"sent"'"""),
        (["send", "--happened", "NaN"], "is not JSON"),
        ([], "Say one of --happened [JSON], --did-not-happen, --fail of 3 send("),
        (["send"], "Say one of --happened [JSON], --did-not-happen, --fail of 3 send("),
        (["send", "--fail", "--did-not-happen"], "Say one of"),
        (["send", "--happened", "1", "--fail"], "Say one of"),
        (["fetch", "--fail"], "is not in doubt; in doubt: 3 send."),
        (["1", "--fail"], "is not in doubt; in doubt: 3 send."),
        (["99", "--fail"], "is not in doubt; in doubt: 3 send."),
        (["send", "--maybe"], "has no option --maybe"),
    ):
        result = doubt.perdure("settle", "-", *arguments)
        assert result.code == 2, result
        assert said in result.err
        assert "Traceback" not in result.err
    assert doubt.runs()[0]["next"].startswith("perdure settle")


def test_settled_effect_is_not_in_doubt_any_more(doubt: Any) -> None:
    doubt.perdure("settle", "-", "send", "--happened", '"x"')
    doubt.python("work.py", "2")
    result = doubt.perdure("settle", "-", "send", "--did-not-happen")
    assert result.code == 2, result
    assert "nothing in this run is" in result.err


def test_effects_of_one_name_are_settled_by_number(place: Any) -> None:
    place.write(
        "work.py",
        """
        import asyncio

        @perdure.effect
        async def send(to: str) -> str:
            await asyncio.sleep(0.05)
            os.kill(os.getpid(), signal.SIGKILL)
            return to

        @perdure.agent
        async def work() -> list[str]:
            return list(await asyncio.gather(send("ada"), send("bob")))

        if __name__ == "__main__":
            print(perdure.run(work))
        """,
    )
    place.python("work.py")
    both = place.perdure("settle", "-", "send", "--fail")
    assert both.code == 2, both
    assert "2 effects named send" in both.err
    first = place.perdure("settle", "-", "1", "--happened", '"ada"')
    assert "still in doubt: 2 send(to='bob')" in first.out, first
    assert place.perdure("settle", "-", "2", "--happened", '"bob"').code == 0
    assert place.python("work.py").out == "['ada', 'bob']\n"


def test_step_may_be_left_out_where_one_effect_is_in_doubt(doubt: Any) -> None:
    name = doubt.name()
    result = doubt.perdure("settle", name[:-2], "--happened", '"sent by hand"', "--by", "Ada")
    assert result.code == 0, result
    assert f'{name}  3 send: it happened, result "sent by hand" (by Ada)\n' in result.out
    assert doubt.python("work.py", "2").out == "result: sent by hand\n"
    nothing = doubt.perdure("settle", "-", "--fail")
    assert nothing.code == 2, nothing
    assert f"Nothing in run {name} is in doubt." in nothing.err


def test_programs_are_told_the_verdict_and_what_follows(doubt: Any) -> None:
    whole = doubt.perdure("settle", "-", "send", "--happened", '"x"', "--by", "Ada", "--json").json()
    assert (whole["step"], whole["number"], whole["outcome"], whole["result"]) == ("send", 3, "happened", "x")
    assert (whole["by"], whole["still_in_doubt"]) == ("Ada", 0)
    assert whole["consequence"].startswith("a resume takes that for its result")
    assert whole["run"]["next"] == f"perdure resume {doubt.name()} --app work.py"
    again = doubt.perdure("settle", "-", "send", "--happened", '"x"', "--by", "Bob", "--json").json()
    assert again["by"] == "Ada"
