"""`perdure ps`: what moves and what needs somebody, each with its reason and the exact next command."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from fcntl import ioctl
from termios import TIOCSWINSZ
from typing import Any

import pytest
from msgspec import Struct

from perdure import clock
from perdure.cli.watch import Sight, watch
from tests.faces.conftest import Place

COLUMNS = 80


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The same folder for all tests that only look at it."""
    place = Place(tmp_path_factory.mktemp("states"))
    yield filled_with_states(place)
    place.end()


@pytest.fixture
def states(place: Any) -> Any:
    """A folder of the test's own, to change things in."""
    return filled_with_states(place)


def filled_with_states(place: Any) -> Any:
    """A folder with one run of each agent of `STATES`, each in the state that its name says."""
    place.write("work.py", STATES)
    for agent in ("finished", "failed", "time", "signal", "human", "paused", "child", "dead"):
        place.python("work.py", agent)
    for agent in ("doubt", "parked"):
        for _ in range(4):
            place.python("work.py", agent)
    place.start("work.py", "running")
    (paused,) = [run["name"] for run in place.runs() if run["agent"] == "work.paused"]
    place.perdure("pause", paused)
    return place


def listed(place: Any, *options: str) -> dict[str, dict[str, Any]]:
    """The runs that `perdure ps` shows, by the agent's own name; the child of `child` is the second `human`."""
    found: dict[str, dict[str, Any]] = {}
    for run in place.perdure("ps", "--json", *options).json()["runs"]:
        found.setdefault(run["agent"].removeprefix("work.").removesuffix("_"), run)
    return found


def test_each_state_tells_its_reason_and_the_exact_next_command(shared: Any) -> None:
    runs = listed(shared)
    name = {agent: run["name"] for agent, run in runs.items()}
    told = {agent: (run["state"], run["reason"], run["next"]) for agent, run in runs.items()}
    resume = "perdure resume {} --app work.py"
    asked = next(run["name"] for run in shared.runs() if run["agent"] == "work.human")  # the newest: the child
    assert told == {
        "doubt": (
            "waiting",
            "in_doubt",
            f"perdure settle {name['doubt']} send <--happened [JSON] | --did-not-happen>",
        ),
        "parked": ("waiting", "parked", resume.format(name["parked"])),
        "human": ("waiting", "human", f"perdure approve {asked} (or: perdure reject {asked})"),
        "paused": ("waiting", "human", f"perdure unpause {name['paused']}"),
        "dead": ("queued", "", resume.format(name["dead"])),
        "failed": ("failed", "", resume.format(name["failed"])),
        "running": ("running", "", ""),
        "child": ("waiting", "child", f"perdure approve {asked} (or: perdure reject {asked})"),
        "signal": ("waiting", "signal", f"perdure signal {name['signal']} go <json>"),
        "time": ("waiting", "time", resume.format(name["time"])),
    }
    assert runs["dead"]["cause"].startswith("its process died (pid ")
    assert runs["paused"]["cause"].startswith("paused by ")
    assert runs["time"]["cause"].startswith("sleeps until ")
    assert "ended 3 workers in a row" in runs["parked"]["cause"]
    assert "finished" not in runs
    assert listed(shared, "--all")["finished"]["state"] == "completed"


def test_table_puts_first_what_needs_a_person_and_counts_at_the_end(shared: Any) -> None:
    shown = shared.perdure("ps").out
    rows = [line.split() for line in shown.splitlines() if " work." in line and not line.startswith(" ")]
    agents = [cells[1].removeprefix("work.").removesuffix("_") for cells in rows]
    assert set(agents[:5]) == {"human", "doubt", "parked", "paused"}
    assert agents[5:8] == ["dead", "failed", "running"]
    assert set(agents[8:]) == {"child", "signal", "time"}
    words = {agent: " ".join(cells[2:5]) for agent, cells in zip(agents, rows, strict=True)}
    assert words["dead"] == "queued process died"
    assert words["doubt"] == "waiting in doubt"
    assert words["failed"].startswith("failed ValueError ")
    assert words["paused"].startswith("waiting paused ")
    assert re.search(r"work.running +running pid \d+@\S+ +27/50 +\d+s +\d+s ago +\$0.0540$", shown, re.MULTILINE), shown
    counts = (
        "12 runs: 1 running, 1 queued, 8 waiting (3 human, 1 time, 1 signal, 1 child, 1 in doubt, 1 parked), 1 failed,"
        " 1 completed"
    )
    assert " ".join(shown.split()).endswith(counts), shown


def test_killed_run_is_not_running_a_moment_later(place: Any) -> None:
    place.write("work.py", STATES)
    process = place.start("work.py", "running")
    assert listed(place)["running"]["state"] == "running"
    process.kill()
    process.wait()
    told = place.perdure("ps", "--json").json()
    assert (told["runs"][0]["state"], told["states"]["running"], told["states"]["queued"]) == ("queued", 0, 1)
    assert told["runs"][0]["cause"].startswith(f"its process died (pid {process.pid} ")
    assert "running" not in place.perdure("ps").out.replace("work.running", "")


def test_next_commands_do_what_they_say(states: Any) -> None:
    for agent, code in (("dead", -signal.SIGKILL), ("failed", 1), ("paused", 0)):
        command = listed(states)[agent]["next"].split()[1:]
        assert states.perdure(*command).code in (code, 128 + signal.SIGKILL), command
    command, _, choices = listed(states)["doubt"]["next"].partition(" <")
    assert choices == "--happened [JSON] | --did-not-happen>"
    assert states.perdure(*command.split()[1:], "--did-not-happen").code == 0
    assert "settled by" in listed(states)["doubt"]["cause"]


def test_pages_name_the_command_for_the_next_one(shared: Any) -> None:
    shown = shared.perdure("ps", "--limit", "4").out
    assert "… and 7 more: perdure ps --limit 4 --page 2\n" in shown
    told = [shared.perdure("ps", "--limit", "4", "--page", page, "--json").json() for page in "123"]
    assert [(each["page"], each["pages"], each["total"], len(each["runs"])) for each in told] == [
        (1, 3, 11, 4),
        (2, 3, 11, 4),
        (3, 3, 11, 3),
    ]
    whole = shared.perdure("ps", "--json").json()["runs"]
    assert [run["run_id"] for each in told for run in each["runs"]] == [run["run_id"] for run in whole]
    assert shared.perdure("ps", "--page", "9").code == 2


def test_table_fits_eighty_columns_of_a_terminal(shared: Any) -> None:
    shown = on_a_terminal(shared, "ps", NO_COLOR="1")
    assert "\x1b" not in shown
    lines = shown.splitlines()
    # A command is never cut, however long the name of its run is: it is there to be pasted.
    assert max(len(line) for line in lines if not line.startswith("  next: ")) <= COLUMNS, shown
    assert lines[0].split() == ["RUN", "AGENT", "STATE", "STEP", "AGE", "PROGRESS", "COST"]
    assert "queued  process died" in shown
    assert re.search(r"next: perdure settle \S+ send <--happened \[JSON\] \| --did-not-happen>\n", shown), shown


def test_long_names_are_cut_on_a_terminal_and_whole_elsewhere(place: Any) -> None:
    place.write("work.py", LONG_NAMES)
    place.python("work.py")
    shown = on_a_terminal(place, "ps", NO_COLOR="1")
    assert max(map(len, shown.splitlines())) <= COLUMNS, shown
    assert "…" in shown
    whole = place.perdure("ps").out
    assert "work.look_after_every_customer_of_the_harbour" in whole
    assert "failed  NobodyKnowsThisCustomer" in whole
    assert "…" not in whole


def test_watch_repeats_nothing_that_did_not_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter(["one", "one", "two", "two", "one"])

    def look() -> Sight:
        word = next(looks, "")
        if not word:
            raise KeyboardInterrupt
        return Sight([f"{word} at {next(moments)}"], Struct(), sign=word)

    moments = itertools.count()
    monkeypatch.setattr(clock, "sleep", lambda _seconds: None)
    watch(look)
    assert capsys.readouterr().out == "one at 0\n\ntwo at 2\n\none at 4\n\n"


def test_watch_on_a_pipe_tells_each_change_and_ends_quietly(place: Any) -> None:
    place.write("work.py", STATES)
    place.python("work.py", "finished")
    command = ["-P", "-m", "perdure", "ps", "--watch", "--json"]
    watching = place.start(*command, until='"completed":1')
    place.python("work.py", "human")
    seen = [json.loads(watching.stdout.readline())]
    while seen[-1]["states"]["waiting"] != 1:
        seen.append(json.loads(watching.stdout.readline()))
    assert seen[-1]["runs"][0]["reason"] == "human"
    watching.send_signal(signal.SIGINT)
    out, err = watching.communicate()
    assert (watching.returncode, out, err) == (0, "", "")


def test_watch_ends_when_nobody_reads(place: Any) -> None:
    place.write("work.py", STATES)
    place.python("work.py", "finished")
    watching = place.start("-P", "-m", "perdure", "ps", "-w", until="Nothing is unfinished")
    watching.stdout.close()
    place.python("work.py", "human")
    assert watching.wait(60) == 141
    assert watching.stderr.read() == ""


def test_nothing_unfinished_says_so(place: Any) -> None:
    place.write("work.py", STATES)
    place.python("work.py", "finished")
    result = place.perdure("ps")
    expected = "Nothing is unfinished in ./.perdure/perdure.db: 1 completed. perdure ls lists them.\n"
    assert (result.code, result.out) == (0, expected)


def on_a_terminal(place: Any, *arguments: str, **environment: str) -> str:
    """What a command prints on a terminal of 80 columns."""
    mine, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    variables = {name: value for name, value in place.environment.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "perdure", *arguments],
        cwd=place.folder,
        env={**variables, "TERM": "xterm", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(mine, 65536)
        except OSError:
            break  # the other side is closed
        if not part:
            break
        parts.append(part)
    os.close(mine)
    assert process.wait() == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


LONG_NAMES = """
    class NobodyKnowsThisCustomer(Exception):
        pass

    @perdure.agent
    def look_after_every_customer_of_the_harbour() -> None:
        perdure.progress(1_000_000, 2_000_000)
        raise NobodyKnowsThisCustomer("ada")

    if __name__ == "__main__":
        perdure.run(look_after_every_customer_of_the_harbour)
"""

STATES = """
    perdure.configure(durability="process")

    @perdure.step
    def fetch(page: int) -> int:
        perdure.current().spent(dollars=0.002)
        return page

    @perdure.effect
    def send(to: str) -> str:
        os.kill(os.getpid(), signal.SIGKILL)

    @perdure.agent
    def finished() -> int:
        return 1

    @perdure.agent
    def failed() -> None:
        raise ValueError("no such customer: ada")

    @perdure.agent
    def time_() -> None:
        perdure.sleep("8h")

    @perdure.agent
    def signal_() -> object:
        return perdure.wait_for("go")

    @perdure.agent
    def human() -> str:
        return perdure.ask("Ship it?", options=["yes", "no"]).choice

    @perdure.agent
    def paused() -> str:
        return perdure.ask("Anything else?").value

    @perdure.agent
    def child() -> str:
        return perdure.start(human).result()

    @perdure.agent
    def dead() -> None:
        fetch(1)
        os.kill(os.getpid(), signal.SIGKILL)

    @perdure.agent
    def doubt() -> None:
        send("ada")

    @perdure.agent
    def parked() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @perdure.agent
    def running() -> None:
        for page in range(27):
            fetch(page)
        perdure.progress(27, 50, "transform")
        print("ready", flush=True)
        time.sleep(600)

    def leave(event):
        if event.reason in ("time", "signal", "child"):
            os._exit(0)

    if __name__ == "__main__":
        perdure.subscribe(leave, perdure.events.RunEnded)
        perdure.run(globals().get(sys.argv[1] + "_") or globals()[sys.argv[1]])
"""
