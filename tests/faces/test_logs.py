"""`perdure logs`: one line for each record, and following a run across a crash and a resume."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import click
import pytest

from perdure.cli.logs import Log
from perdure.records import Kind, Record
from perdure.store.memory import MemoryStore
from tests.store.journals import ending, held_run, land, step

LINE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z  "


def test_each_record_is_one_line_with_its_time(agent: Any) -> None:
    agent.python("work.py", "2")
    lines = agent.perdure("logs", "-").out.splitlines()
    words = [re.sub(r"\d+\.\d s$", "TIME", re.sub(rf"^{LINE}", "", line)) for line in lines]
    assert all(re.match(LINE, line) for line in lines)
    assert re.match(r"accepted by perdure \S+, Python \S+$", words[0])
    assert re.match(r"delivery 1: pid \d+ on \S+$", words[1])
    assert words[2:] == [
        "   1 fetch(page=0)  done, TIME",
        "   2 fetch(page=1)  done, TIME",
        "   3 send(to='ada@example.com')  intent",
        "   3 send(to='ada@example.com')  receipt, TIME",
        "completed",
    ]
    assert len(agent.perdure("logs", "-", "--since", "5").out.splitlines()) == 2


def test_json_is_one_object_to_a_line(agent: Any) -> None:
    agent.python("work.py", "2")
    told = [json.loads(line) for line in agent.perdure("logs", "-", "--json").out.splitlines()]
    assert [moment["seq"] for moment in told] == list(range(7))
    assert told == agent.perdure("show", "-", "--json").json()["timeline"]


def test_following_goes_on_across_a_crash_and_a_resume_and_ends_with_the_run(place: Any) -> None:
    place.write("work.py", SLOW)
    first = place.start("work.py", until="waiting")
    following = place.start("-P", "-m", "perdure", "logs", "-", "-f", until="1 fetch(n=1)")
    first.kill()
    first.wait()
    (place.folder / "go").touch()
    assert "its process died" in following.stderr.readline()
    assert place.python("work.py").code == 0
    out, err = following.communicate(timeout=60)
    assert following.returncode == 0
    assert re.search(r"its process died \(pid \d+ on \S+\) · delivery 2: resumed, 1 step replayed \(pid \d+ ", out), out
    assert re.search(r"2 fetch\(n=2\)  done, .+\n.+completed\n$", out), out
    assert err == ""


def test_end_that_comes_while_the_journal_is_printed_is_not_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    class Overtaken(MemoryStore):
        """Its run ends right after somebody has read its journal."""

        def load_journal(self, run_id: str) -> list[Record]:
            records = super().load_journal(run_id)
            if records[-1].kind != Kind.ENDED:
                land(self, ending(moving))
            return records

    store = Overtaken()
    moving = land(store, step(held_run(store)))
    log = Log(store, moving, since=0)
    with click.Context(click.Command("logs")):
        log.print_new()
        log.follow()
    assert re.sub(LINE, "", capsys.readouterr().out).splitlines()[-1] == "completed"


def test_following_ends_quietly_when_interrupted_and_when_nobody_reads(place: Any) -> None:
    place.write("work.py", SLOW)
    place.start("work.py", until="waiting")
    following = place.start("-P", "-m", "perdure", "logs", "-", "--follow", until="1 fetch(n=1)")
    following.send_signal(signal.SIGINT)
    out, err = following.communicate()
    assert (following.returncode, out, err) == (0, "", "")
    unread = place.start("-P", "-m", "perdure", "logs", "-", "--follow", until="1 fetch(n=1)")
    unread.stdout.close()
    (place.folder / "go").touch()
    assert unread.wait(60) == 141
    assert unread.stderr.read() == ""


def test_a_run_that_is_over_is_not_followed(agent: Any) -> None:
    agent.python("work.py", "1")
    result = agent.perdure("logs", "-", "-f")
    assert (result.code, len(result.out.splitlines())) == (0, 6)


SLOW = """
    @perdure.step
    def fetch(n: int) -> int:
        return n

    @perdure.agent
    def work() -> int:
        fetch(1)
        wait()
        return fetch(2)

    def wait() -> None:
        print("waiting", flush=True)
        while not pathlib.Path("go").exists():
            time.sleep(0.01)

    if __name__ == "__main__":
        perdure.run(work)
"""
