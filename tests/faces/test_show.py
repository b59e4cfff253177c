"""`perdure show`: the timeline as a tree, crashes and resumes in it, why the run stopped, and the next command."""

from __future__ import annotations

import json
import re
from typing import Any

import apsw
import pytest


def test_dead_run_is_not_shown_as_running(agent: Any) -> None:
    agent.python("work.py", "3", KILL="1")
    shown = agent.perdure("show").out
    name = agent.name()
    assert re.search(rf"^{name}  work.report +queued, 2 steps\n", shown), shown
    assert re.search(r"\nqueued: its process died \(pid \d+ on .+\)\n", shown), shown
    assert shown.endswith(f"\nnext: perdure resume {name} --app work.py\n")
    assert "running" not in shown


def test_without_run_the_last_one_is_shown(agent: Any) -> None:
    agent.python("work.py", "1")
    agent.python("work.py", "2")
    assert agent.perdure("show").out == agent.perdure("show", agent.name()).out
    assert agent.perdure("show").out == agent.perdure("show", "-").out


def test_timeline_tells_attempts_patches_deliveries_doubts_and_verdicts(place: Any) -> None:
    place.write("work.py", EVENTFUL)
    place.python("work.py", KILL="charge")
    place.python("work.py", KILL="mail")
    place.python("work.py")
    name = place.name()
    waiting = place.perdure("show", "-").out
    assert f"next: perdure settle {name} mail <--happened [JSON] | --did-not-happen>\n" in waiting
    place.perdure("settle", "-", "mail", "--did-not-happen")
    assert place.python("work.py").code == 0
    told = place.perdure("show", name).out
    in_order = [
        rf"^{name}  work.work +completed, 5 steps$",
        r"— delivery 1: pid \d+ on \S+ —",
        r"   1 +\+\d+\.\ds  ✘ flaky  attempt 1 failed: OSError: nope; the next after 0.0 s",
        r"   1 +\+\d+\.\ds  ✔ flaky\(\) +step +\d+\.\d s  attempt 2",
        r"patched: new-path",
        r"   2 .+ ✔ plain\(\)",
        r"   3 .+ ▸ charge\(cents=5\) +effect intent, not confirmed$",
        r"— its process died \(pid \d+ on \S+\) · delivery 2: resumed, 2 steps replayed —",
        r"   3 .+ ✔ charge\(cents=5\) +effect +\d+\.\d s  attempt 2$",
        r"   4 .+ ▸ mail\(to='ada'\) +effect intent, not confirmed$",
        r"— its process died \(pid \d+ on \S+\) · delivery 3: resumed, 3 steps replayed —",
        r"— stopped \(in doubt\): mail\(to='ada'\) was started",
        r"— delivery 4: resumed, 3 steps replayed —",
        r"   4 .+ = mail  verdict: it did not happen \(by \S+@\S+\)",
        r"   4 .+ ✔ mail\(to='ada'\) +effect +\d+\.\d s  attempt 2$",
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
    assert set(whole) == {"store", "run", "timeline", "in_doubt", "total", "parent", "result"}
    run = whole["run"]
    assert (run["agent"], run["state"], run["reason"], run["steps"]) == ("work.work", "waiting", "in_doubt", 3)
    (doubt,) = whole["in_doubt"]
    assert (doubt["number"], doubt["name"], doubt["attempt"], doubt["call"]) == (4, "mail", 1, "mail(to='ada')")
    kinds = [moment["record"] for moment in whole["timeline"]]
    assert kinds[:4] == ["started", "delivery", "attempt", "step"]
    assert kinds[-1] == "ended"
    assert [moment["seq"] for moment in whole["timeline"]] == list(range(len(kinds)))
    assert (whole["total"], whole["parent"], whole["result"]) == (len(kinds), "", None)
    deliveries = [moment for moment in whole["timeline"] if moment["record"] == "delivery"]
    assert [(each["delivery"], each.get("replayed", 0)) for each in deliveries] == [(1, 0), (2, 3)]


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
    commands = (["ps"], ["ls"], ["show"], ["step", "-", "1"], ["logs", "-"], ["settle", "-", "\x1b[2J", "--fail"])
    for arguments in (*commands, ["resume"], ["step", "-", "\x1b[2J"]):
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
    assert far.err.endswith("     do: perdure ls lists them\n")


def test_prefix_of_several_runs_is_refused(agent: Any) -> None:
    for pages in "12":
        agent.write("named.py", f"from work import report\nperdure.run(report, {pages}, run_id='order-{pages}')")
        agent.python("named.py")
    result = agent.perdure("show", "order-")
    assert result.code == 2, result
    assert "2 runs begin with 'order-'" in result.err
    assert agent.perdure("show", "order-2").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["ps"],
        ["ls"],
        ["show"],
        ["show", "-"],
        ["step", "-", "1"],
        ["logs", "-"],
        ["resume"],
        ["verify"],
        ["settle", "-", "x", "--fail"],
    ],
)
def test_store_that_is_not_there_is_not_made(place: Any, arguments: list[str]) -> None:
    result = place.perdure(*arguments)
    assert result.code == 6, result
    assert "There is no store at" in result.err
    assert list(place.folder.iterdir()) == []


def test_empty_store_says_what_to_do(place: Any) -> None:
    place.python("-c", "from perdure.engine.session import session; session()")
    result = place.perdure("show")
    assert result.code == 2, result
    assert "There are no runs in " in result.err
    assert "perdure demo shows how it works" in result.err


def test_what_each_task_thread_agent_map_and_child_did_stands_below_its_name(place: Any) -> None:
    place.write("work.py", BRANCHING)
    place.python("work.py")
    parent = next(run for run in place.runs() if run["agent"] == "work.work")
    shown = place.perdure("show", parent["name"]).out
    untimed = re.sub(r"\d+\.\d s", "TIME", shown)
    tree = [line[14:].split("  ")[0] for line in untimed.splitlines() if line[14:15] in ("╭", "│")]
    child = next(run for run in place.runs() if run["agent"] == "work.kid")
    assert tree == [
        "╭ branch",
        "│ ✔ fetch(n=1)",
        "│ ✔ fetch(n=10)",
        "╭ branch #2",
        "│ ✔ fetch(n=2)",
        "│ ╭ inner",
        "│ │ ✔ fetch(n=20)",
        "╭ <lambda>",
        "│ ✔ slow(n=3)",
        "╭ map(send)",
        "│ ✔ send(n=7)",
        "│ ✔ send(n=8)",
        f"│ work.kid, 1 step, TIME: perdure show {child['name']}",
        "│ ✔ slow(n=4)",
    ], shown
    told = place.perdure("show", parent["name"], "--json").json()["timeline"]
    scopes = {moment["call"]: moment.get("scope", []) for moment in told if moment.get("kind") in ("step", "effect")}
    assert scopes["fetch(n=20)"] == ["work.<locals>.branch#1", "inner#0"]
    assert scopes["slow(n=5)"] == []
    assert place.perdure("show", child["name"], "--json").json()["parent"] == parent["run_id"]


def test_a_branch_that_goes_on_after_a_crash_is_told_on_both_sides_of_it(place: Any) -> None:
    place.write("work.py", BRANCHING)
    place.python("work.py", KILL="branch")
    place.python("work.py")
    shown = place.perdure("show", next(run for run in place.runs() if run["agent"] == "work.work")["name"]).out
    before, crash, after = shown.partition("— its process died")
    assert crash
    assert "╭ branch\n" in before
    assert "✔ fetch(n=1)" in before
    assert "fetch(n=10)" not in before
    assert "╭ branch\n" in after
    assert "✔ fetch(n=10)" in after


def test_a_long_run_is_told_by_its_head_its_newest_moments_and_its_end(place: Any) -> None:
    place.write("work.py", LONG)
    place.python("work.py", "300")
    name = place.name()
    shown = place.perdure("show").out.splitlines()
    assert len(shown) < 60
    assert shown[3] == '  arguments {"steps":300}'
    assert f"  … 262 earlier moments: perdure show {name} --all, or --from 222" in shown
    numbers = [int(line.split()[0]) for line in shown if "✔" in line]
    assert numbers == list(range(262, 301))
    assert shown[-1] == "  result: 300"
    paged = place.perdure("show", name, "--from", "222").out
    assert [int(line.split()[0]) for line in paged.splitlines() if "✔" in line] == list(range(222, 262))
    assert f"… 40 later moments: perdure show {name} --from 262\n" in paged
    whole = place.perdure("show", name, "--all").out
    assert sum("✔" in line for line in whole.splitlines()) == 300
    assert "earlier" not in whole
    assert len(place.perdure("show", name, "--json").json()["timeline"]) == 303
    beyond = place.perdure("show", name, "--from", "301")
    assert beyond.code == 2, beyond
    assert "There is no step 301: the run has 300 steps." in beyond.err
    assert place.perdure("show", name, "--from", "x").code == 2


def test_what_steps_say_they_took_is_told_for_each_and_for_the_run(place: Any) -> None:
    place.write("work.py", LONG)
    place.python("work.py", "3", SPEND="1")
    shown = place.perdure("show").out
    assert len(re.findall(r"✔ count\(n=\d\) +step +\d+\.\d s  \$0.0020$", shown, re.MULTILINE)) == 3
    assert re.search(r"  took \d.\d s   cost \$0.0060   30 tokens\n", shown), shown


def test_store_of_a_newer_version_and_a_damaged_one_are_refused_in_words(agent: Any) -> None:
    agent.python("work.py", "1")
    connection = apsw.Connection(str(agent.database))
    version = int(str(connection.pragma("user_version")))
    connection.execute(f"PRAGMA user_version = {version + 1}")
    connection.close()
    for command in COMMANDS:
        newer = agent.perdure(*command)
        assert (newer.code, newer.err.count("\n")) == (6, 3), newer
        assert "newer" in newer.err
    agent.database.write_bytes(b"no database any more " * 400)
    for command in COMMANDS:
        damaged = agent.perdure(*command)
        assert (damaged.code, damaged.err.count("\n")) == (6, 3), damaged
        told = json.loads(agent.perdure(*command, "--json").out)
        assert told["error"]["exit_code"] == 6
        assert told["error"]["hint"]


COMMANDS = [["ps"], ["ls"], ["show"], ["step", "-", "1"], ["logs", "-"]]

LONG = """
    perdure.configure(durability="process")

    @perdure.step
    def count(n: int) -> int:
        if os.environ.get("SPEND"):
            perdure.current().spent(dollars=0.002, tokens=10)
        return n

    @perdure.agent
    def work(steps: int) -> int:
        for n in range(steps):
            count(n)
        return steps

    if __name__ == "__main__":
        perdure.run(work, int(sys.argv[1]))
"""

BRANCHING = """
    import asyncio, threading

    @perdure.step
    async def fetch(n: int) -> int:
        if n == 10 and os.environ.get("KILL"):
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    @perdure.step
    def slow(n: int) -> int:
        return n

    @perdure.effect(in_flight_seconds=0)
    def send(n: int) -> int:
        return n

    @perdure.agent
    async def inner(n: int) -> int:
        return await fetch(n)

    @perdure.agent
    def kid(n: int) -> int:
        return slow(n)

    @perdure.agent
    async def work() -> int:
        async def branch(n: int) -> int:
            await fetch(n)
            return await (fetch(10) if n == 1 else inner(20))

        await asyncio.gather(branch(1), branch(2))
        thread = threading.Thread(target=lambda: slow(3))
        thread.start()
        thread.join()
        list(perdure.map(send, [7, 8]))
        await perdure.start(kid, 4)
        return slow(5)

    if __name__ == "__main__":
        perdure.run(work)
"""

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
