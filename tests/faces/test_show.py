"""`perdure show`: the list, the timeline, and where a run really stands."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest


def test_dead_run_is_not_shown_as_running(agent: Any) -> None:
    agent.python("work.py", "3", KILL="1")
    shown = agent.perdure("show").out
    name = agent.name()
    assert re.search(rf"{name} +work.report +queued +2 ", shown), shown
    assert re.search(r"  its process died \(pid \d+ on .+\)\n", shown), shown
    assert f"  next: perdure resume {name} --app work.py\n" in shown
    assert "running" not in shown


def test_stopped_process_is_alive_until_it_is_stalled(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.agent
        def work() -> None:
            print("ready", flush=True)
            time.sleep(60)

        perdure.run(work)
        """,
    )
    process = place.start("work.py")
    run = place.runs()[0]
    assert (run["state"], run["next"]) == ("running", "")
    assert run["cause"].startswith(f"held by pid {process.pid} on ")
    process.send_signal(signal.SIGSTOP)
    patient = place.perdure("show", "--json").json()["runs"][0]
    assert patient["state"] == "running"
    settings = {"PERDURE_STALL_SECONDS": "0.002", "PERDURE_RENEW_SECONDS": "0.001"}
    stalled = place.perdure("show", "--json", **settings).json()["runs"][0]
    assert stalled["state"] == "queued"
    assert stalled["cause"].startswith("its process gave no sign of life")


def test_list_is_newest_first_and_shortened(agent: Any) -> None:
    agent.write(
        "many.py",
        """
        perdure.configure(durability="process")
        from work import fetch

        @perdure.agent
        def quick(number: int) -> str:
            return fetch(number)

        for number in range(23):
            perdure.run(quick, number)
        """,
    )
    agent.python("many.py")
    shown = agent.perdure("show").out.splitlines()
    assert len(shown) == 22
    assert shown[-1] == "… and 3 older: perdure show --all"
    assert len(agent.perdure("show", "--all").out.splitlines()) == 24
    runs = agent.runs()
    assert len(runs) == 23
    assert [run["created_at"] for run in runs] == sorted((run["created_at"] for run in runs), reverse=True)


def test_timeline_tells_attempts_patches_deliveries_doubts_and_verdicts(place: Any) -> None:
    place.write("work.py", EVENTFUL)
    place.python("work.py", KILL="charge")
    place.python("work.py", KILL="mail")
    place.python("work.py")
    name = place.name()
    waiting = place.perdure("show", "-").out
    assert f"next: perdure settle {name} mail --did-not-happen (or: --happened RESULT_AS_JSON)\n" in waiting
    place.perdure("settle", "-", "mail", "--did-not-happen")
    assert place.python("work.py").code == 0
    told = place.perdure("show", name).out
    in_order = [
        rf"^{name}  work.work +completed, 5 steps$",
        r"— delivery 1: pid \d+ on \S+ —",
        r"   1 +\+\d+\.\ds  ✘ flaky  attempt 1 failed: OSError: nope; the next after 0.0 s",
        r"   1 +\+\d+\.\ds  ✔ flaky\(\) +step +attempt 2 0.0 s",
        r"patched: new-path",
        r"   2 .+ ✔ plain\(\)",
        r"   3 .+ ▸ charge\(cents=5\) +effect intent$",
        r"— delivery 2: its process died \(pid \d+ on \S+\) —",
        r"   3 .+ ▸ charge\(cents=5\) +effect intent attempt 2$",
        r"   3 .+ ✔ charge\(cents=5\) +effect receipt attempt 2 0.0 s$",
        r"   4 .+ ▸ mail\(to='ada'\) +effect intent$",
        r"— delivery 3: its process died",
        r"— stopped \(in doubt\): ",
        r"— delivery 4: ",
        r"   4 .+ = mail  verdict: it did not happen \(by \S+@\S+\)",
        r"   4 .+ ✔ mail\(to='ada'\) +effect receipt attempt 2",
        r"   5 .+ ✔ plain\(\)",
        r"  completed\n  result: \"sent\"",
    ]
    at = 0
    for pattern in in_order:
        found = re.compile(pattern, re.MULTILINE).search(told, at)
        assert found, f"{pattern} is not in\n{told[at:]}"
        at = found.end()


def test_json_tells_the_same_to_programs(place: Any) -> None:
    place.write("work.py", EVENTFUL)
    place.python("work.py", KILL="mail")
    place.python("work.py")
    whole = place.perdure("show", "-", "--json").json()
    assert set(whole) == {"store", "run", "timeline", "in_doubt"}
    run = whole["run"]
    assert (run["agent"], run["state"], run["reason"], run["steps"]) == ("work.work", "waiting", "in_doubt", 3)
    (doubt,) = whole["in_doubt"]
    assert (doubt["number"], doubt["name"], doubt["attempt"], doubt["shown"]) == (4, "mail", 1, "mail(to='ada')")
    kinds = [moment["record"] for moment in whole["timeline"]]
    assert kinds[:4] == ["started", "delivery", "attempt", "step"]
    assert kinds[-1] == "ended"
    assert [moment["seq"] for moment in whole["timeline"]] == list(range(len(kinds)))


def test_stored_text_cannot_control_the_terminal(place: Any) -> None:
    place.write(
        "work.py",
        r"""
        @perdure.step(retry=perdure.Retry(attempts=2, delay_seconds=0))
        def step(text: str) -> str:
            if perdure.current().attempt == 1:
                raise ValueError(text)
            return text

        @perdure.agent
        def work(text: str) -> str:
            step(text)
            raise ValueError(text)

        perdure.run(work, "\x1b]0;title\x07\r\x9b31m\u202etxet")
        """,
    )
    place.python("work.py")
    for arguments in (["show"], ["show", "-"], ["resume"], ["settle", "-", "\x1b[2J", "--fail"]):
        result = place.perdure(*arguments)
        shown = (result.out + result.err).replace("\n", "")
        assert shown.isprintable(), ascii(shown)
    assert r"ValueError: \x1b]0;title\x07\r\x9b31m\u202etxet" in place.perdure("show", "-").out


def test_run_is_found_by_name_id_prefix_or_as_the_newest(agent: Any) -> None:
    agent.python("work.py", "1")
    run = agent.runs()[0]
    for wanted in (run["name"], run["run_id"], run["name"][:-2], run["run_id"][:-4], "-"):
        result = agent.perdure("show", wanted)
        assert result.code == 0, result
        assert run["run_id"] in result.out


def test_unknown_run_is_refused_with_names_that_are_near(agent: Any) -> None:
    agent.python("work.py", "1")
    name = agent.name()
    result = agent.perdure("show", name[:2] + "x" + name[3:])
    assert result.code == 2, result
    assert f"did you mean {name}?" in result.err
    assert agent.perdure("show", "").code == 2
    far = agent.perdure("resume", "zzzzzzzz")
    assert far.code == 2
    assert far.err.endswith("     do: perdure show lists them\n")


def test_prefix_of_several_runs_is_refused(agent: Any) -> None:
    for pages in "12":
        agent.write("named.py", f"from work import report\nperdure.run(report, {pages}, run_id='order-{pages}')")
        agent.python("named.py")
    result = agent.perdure("show", "order-")
    assert result.code == 2, result
    assert "2 runs begin with 'order-'" in result.err
    assert agent.perdure("show", "order-2").code == 0


@pytest.mark.parametrize("arguments", [["show"], ["show", "-"], ["resume"], ["verify"], ["settle", "-", "x", "--fail"]])
def test_store_that_is_not_there_is_not_made(place: Any, arguments: list[str]) -> None:
    result = place.perdure(*arguments)
    assert result.code == 6, result
    assert "There is no store at" in result.err
    assert list(place.folder.iterdir()) == []


def test_empty_store_says_what_to_do(place: Any) -> None:
    place.python("-c", "from perdure.engine.session import session; session()")
    result = place.perdure("show")
    assert result.code == 0, result
    assert result.out.endswith("perdure demo shows how it works.\n")
    assert "There are no runs" in place.perdure("show", "-").err


EVENTFUL = """
    @perdure.step(retry=perdure.Retry(attempts=2, delay_seconds=0))
    def flaky() -> int:
        if perdure.current().attempt == 1:
            raise OSError("nope")
        return 1

    @perdure.step
    def plain() -> int:
        return 2

    @perdure.effect(keyed=True)
    def charge(cents: int) -> str:
        if os.environ.get("KILL") == "charge":
            os.kill(os.getpid(), signal.SIGKILL)
        return "charged"

    @perdure.effect
    def mail(to: str) -> str:
        if os.environ.get("KILL") == "mail":
            os.kill(os.getpid(), signal.SIGKILL)
        return "sent"

    @perdure.agent
    def work() -> str:
        flaky()
        if perdure.patched("new-path"):
            plain()
        charge(5)
        sent = mail("ada")
        plain()
        return sent

    if __name__ == "__main__":
        perdure.run(work)
"""
