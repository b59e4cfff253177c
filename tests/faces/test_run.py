"""`perdure run`: a script as if perdure were not there, an agent with arguments, and the same command again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faces.moving import GATED, SLOW, on_terminal, read_until, runs_of

PERDURE = ("-P", "-m", "perdure")


def test_script_has_our_arguments_input_output_and_exit_code(place: Any) -> None:
    place.write("echo.py", "print(sys.argv[1:], sys.stdin.read())\nprint('aside', file=sys.stderr)\nsys.exit(7)\n")
    result = place.perdure("run", "echo.py", "--fresh", "-x", "a b", "--", "c=1", typed="typed")
    assert (result.code, result.out, result.err) == (7, "['--fresh', '-x', 'a b', '--', 'c=1'] typed\n", "aside\n")


def test_script_has_the_same_interpreter_and_can_import_what_lies_beside_it(place: Any) -> None:
    (place.folder / "sub").mkdir()
    place.write("sub/beside.py", "VALUE = 5\n")
    place.write("sub/main.py", "import beside\nprint(sys.executable, beside.VALUE, __name__)\n")
    assert place.perdure("run", "sub/main.py").out == f"{sys.executable} 5 __main__\n"


def test_killed_script_says_what_is_saved_and_the_same_command_resumes_it(agent: Any) -> None:
    killed = agent.perdure("run", "work.py", "3", KILL="1")
    assert killed.code == -signal.SIGKILL, killed
    name = runs_of(agent)[0]["name"]
    line = f"perdure: work.py was ended by SIGKILL; {name} has 2 steps saved. The same command resumes it.\n"
    assert killed.err.endswith(line), killed
    again = agent.perdure("run", "work.py", "3")
    assert (again.code, again.out) == (0, "result: sent to ada@example.com\n")
    assert f"resumed {name} at step 3: 2 steps not repeated, saved" in again.err
    assert agent.lines("log.txt") == ["fetch 0", "fetch 1", "fetch 2", "send ada@example.com"]


def test_killed_script_without_a_run_claims_nothing(place: Any) -> None:
    place.write("plain.py", "os.kill(os.getpid(), signal.SIGKILL)\n")
    killed = place.perdure("run", "plain.py")
    assert killed.code == -signal.SIGKILL
    assert killed.err == "perdure: plain.py was ended by SIGKILL; it held no run in ./.perdure/perdure.db\n"
    assert not place.database.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT])
def test_signal_sent_to_us_reaches_the_script(place: Any, number: int) -> None:
    place.write(
        "traps.py",
        """
        def trap(number, frame):
            print("got", number, flush=True)
            sys.exit(11)
        signal.signal(int(sys.argv[1]), trap)
        print("ready", flush=True)
        while True:
            signal.pause()
        """,
    )
    process = place.start(*PERDURE, "run", "traps.py", str(int(number)))
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (11, f"got {int(number)}\n")


def test_script_ended_by_a_signal_ends_us_by_the_same(place: Any) -> None:
    place.write("work.py", SLOW)
    process = place.start(*PERDURE, "run", "work.py")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert "work.py was ended by SIGTERM" in err
    (place.folder / "quick").touch()
    assert place.perdure("run", "work.py").code == 0
    assert [run["state"] for run in runs_of(place)] == ["completed"]


def test_control_c_on_a_terminal_reaches_the_script_once(place: Any) -> None:
    place.write(
        "counts.py",
        """
        got = []
        signal.signal(signal.SIGINT, lambda *_: got.append(1))
        print("ready", flush=True)
        sys.stdin.readline()
        print("interrupts:", len(got), flush=True)
        """,
    )
    process, ours = on_terminal(place, *PERDURE, "run", "counts.py")
    read_until(ours, b"ready")
    os.write(ours, b"\x03")
    read_until(ours, b"^C")
    os.write(ours, b"\n")
    shown = read_until(ours, b"interrupts: ", b"\n")
    assert process.wait(timeout=30) == 0
    assert b"interrupts: 1" in shown


def test_killed_command_takes_its_script_along_so_that_nothing_runs_twice(place: Any) -> None:
    place.write("work.py", GATED + "\n    if __name__ == '__main__':\n        print(perdure.run(deliver, 1))\n")
    process = place.start(*PERDURE, "run", "work.py", until="at the gate")
    process.kill()
    process.communicate(timeout=30)
    (place.folder / "open").touch()
    again = place.perdure("run", "work.py")
    assert (again.code, again.out) == (0, "at the gate 1\nsent 3\n"), again
    assert place.lines("log.txt") == ["send 1 1", "send 1 2", "send 1 3"]
    assert len(runs_of(place)) == 1


def test_store_named_for_a_script_is_where_it_keeps_its_runs(agent: Any) -> None:
    assert agent.perdure("run", "--store", "elsewhere.db", "work.py", "1").code == 0
    assert (agent.folder / "elsewhere.db").exists()
    assert not agent.database.exists()


def test_script_as_json_is_one_object_with_its_run(agent: Any) -> None:
    result = agent.perdure("run", "--json", "work.py", "1")
    shown = result.json()
    assert (shown["exit_code"], shown["run"]["state"], shown["result"]) == (0, "completed", None)
    assert "result: sent to ada@example.com" in result.err
    killed = agent.perdure("run", "--json", "work.py", "2", KILL="0")
    assert (killed.code, killed.json()["exit_code"], killed.json()["run"]["steps"]) == (-9, -9, 1)


def test_agent_prints_on_standard_output_and_we_on_standard_error(place: Any) -> None:
    place.write(
        "work.py", "@perdure.agent\ndef work(n: int) -> dict[str, int]:\n    print('mine')\n    return {'n': n}\n"
    )
    result = place.perdure("run", "work.py:work", "n=3")
    assert (result.code, result.out) == (0, 'mine\n{"n":3}\n')
    name = runs_of(place)[0]["name"]
    assert result.err == f"state is kept in ./.perdure/perdure.db\n{name}  work.work\n  completed  0 steps\n"


def test_agents_prints_never_mix_with_the_one_json_object(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.agent
        def work() -> tuple[int, str]:
            print("mine")
            os.system("echo from a process of mine")
            return (1, "a")
        """,
    )
    result = place.perdure("run", "work.py:work", "--json")
    assert (result.code, sorted(result.err.splitlines())) == (0, ["from a process of mine", "mine"]), result
    assert result.json()["run"]["state"] == "completed"


def test_same_command_resumes_the_unfinished_run_of_that_call(agent: Any) -> None:
    command = ("run", "work.py:report", "pages=3")
    assert agent.perdure(*command, KILL="1").code == -signal.SIGKILL
    agent.perdure("run", "work.py:report", "pages=2")
    again = agent.perdure(*command)
    assert (again.code, again.out) == (0, '"sent to ada@example.com"\n')
    assert re.search(r"\n?\S+  resumed at step 3: its process died \(pid \d+ on \S+\)\n  2 steps not", again.err), again
    assert agent.lines("log.txt").count("fetch 0") == 2
    assert agent.perdure(*command, "--fresh").code == 0
    assert len(runs_of(agent)) == 3


def test_run_that_only_had_to_return_still_says_what_was_not_repeated(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.step
        def one() -> int:
            perdure.current().spent(dollars=0.0512)
            return 1

        @perdure.agent
        def work() -> int:
            value = one()
            if os.environ.get("KILL"):
                os.kill(os.getpid(), 9)
            return value
        """,
    )
    place.perdure("run", "work.py:work", KILL="1")
    told = place.perdure("run", "work.py:work").err
    assert re.search(r"1 step not repeated, saved \d+\.\d s and \$0\.0512", told), told


def test_script_and_its_agent_are_the_same_run(agent: Any) -> None:
    agent.python("work.py", "3", KILL="1")
    assert agent.perdure("run", "work:report", "pages=3").code == 0
    assert len(runs_of(agent)) == 1


def test_options_of_ours_may_follow_an_agent(agent: Any) -> None:
    command = ("run", "work.py:report", "pages=1", "--id", "mine", "--tag", "team=billing", "--deadline", "2h")
    shown = agent.perdure(*command, "--json").json()
    assert (shown["run"]["run_id"], shown["run"]["tags"]) == ("mine", {"team": "billing"})
    assert shown["result"] == "sent to ada@example.com"
    again = agent.perdure(*command)
    assert (again.code, again.out) == (0, '"sent to ada@example.com"\n')
    assert agent.lines("log.txt") == ["fetch 0", "send ada@example.com"]
    other = agent.perdure("run", "work.py:report", "pages=2", "--id", "mine")
    assert (other.code, "belongs to another call" in other.err) == (2, True)


TYPED = """
    import dataclasses, datetime, decimal, enum, typing

    class Colour(enum.Enum):
        RED = "red"

    @dataclasses.dataclass
    class Trip:
        day: datetime.date
        stops: list[str]

    @perdure.agent
    def work(text: str = "", number: int = 0, flag: bool = False, path: pathlib.Path = pathlib.Path("."),
             day: datetime.date | None = None, price: decimal.Decimal = decimal.Decimal(0),
             colour: Colour = Colour.RED, trip: Trip | None = None, many: list[int] = [], bare=None) -> str:
        given = (text, number, flag, path, day, price, colour, trip, many, bare)
        return " ".join(repr(each) for each in given if each not in ("", 0, False, None, [], Colour.RED))

    @perdure.agent
    def loose(first, /, *, second: int, **rest) -> list:
        return [first, second, rest]
"""


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("text=Bern", "'Bern' PosixPath('.')"),
        ("text=123", "'123' PosixPath('.')"),
        ('text="quoted"', "'quoted' PosixPath('.')"),
        ("text=a=b", "'a=b' PosixPath('.')"),
        ("number=3", "3 PosixPath('.')"),
        ("flag=true", "True PosixPath('.')"),
        ("path=a/b", "PosixPath('a/b')"),
        ("day=2026-01-02", "PosixPath('.') datetime.date(2026, 1, 2)"),
        ("price=0.10", "PosixPath('.') Decimal('0.10')"),
        ('trip={"day": "2026-01-02", "stops": ["a"]}', "Trip(day=datetime.date(2026, 1, 2), stops=['a'])"),
        ("many=[1, 2]", "PosixPath('.') [1, 2]"),
        ('bare={"a": [1]}', "PosixPath('.') {'a': [1]}"),
        ("bare=NaN", "PosixPath('.') 'NaN'"),
    ],
)
def test_argument_is_json_or_text_and_becomes_what_its_annotation_says(place: Any, typed: str, shown: str) -> None:
    place.write("work.py", TYPED)
    result = place.perdure("run", "work.py:work", typed)
    assert result.code == 0, result
    assert json.loads(result.out).endswith(shown)


def test_positional_keyword_and_free_arguments_are_all_given_by_name(place: Any) -> None:
    place.write("work.py", TYPED)
    result = place.perdure("run", "work.py:loose", "first=a", "second=2", "third=[3]")
    assert (result.code, result.out) == (0, '["a",2,{"third":[3]}]\n'), result


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["page=1"], "report has no argument 'page'."),
        ([], "report: missing a required argument: 'pages'."),
        (["pages=many"], "pages=many does not fit int."),
        (["3"], "'3' is no argument: write name=value."),
        (["pages=1", "pages=2"], "pages is given twice."),
    ],
)
def test_bad_argument_is_refused_with_the_signature(agent: Any, typed: list[str], said: str) -> None:
    result = agent.perdure("run", "work.py:report", *typed)
    assert result.code == 2, result
    assert result.err.splitlines() == [
        f"perdure: {said}",
        "   safe: nothing was started.",
        "     do: it is called as report(pages: int)",
    ]
    assert not agent.database.exists()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("wrok.py", "did you mean work.py?"),
        (".", "'.' is a directory."),
        ("folder.py", "do: a script: perdure run script.py; an agent:"),
        ("nothing", "'nothing' is neither a file nor an agent."),
        (":report", "names no file and no module before its colon"),
        ("missing.py:report", "missing.py does not exist."),
        ("no.such:report", "no.such is neither a file nor a module here"),
        ("work.py:repot", "did you mean work.py:report?"),
        ("empty.py:report", "empty.py has no agent."),
        ("two.py:", "two.py has 2 agents, and none is named."),
        ("two.py:", "one of: two.py:one, two.py:other"),
        ("bare.py:report", "bare.py starts a run as soon as it is loaded."),
        ("broken.py:report", "broken.py cannot be loaded: ZeroDivisionError: division by zero (broken.py, line 3)"),
    ],
)
def test_target_that_cannot_be_used_is_named(agent: Any, target: str, said: str) -> None:
    agent.write("empty.py", "")
    agent.write("two.py", "@perdure.agent\ndef one() -> int: ...\n@perdure.agent\ndef other() -> int: ...\n")
    agent.write("bare.py", "from work import report\nprint(perdure.run(report, 3))\n")
    agent.write("broken.py", "1 / 0\n")
    (agent.folder / "folder.py").mkdir()
    result = agent.perdure("run", target, "pages=1")
    assert result.code == 2, result
    assert said in result.err
    assert "Traceback" not in result.err
    assert not agent.database.exists()


@pytest.mark.parametrize("imported", ["from .prices import price", "from shop.prices import price"])
def test_file_that_needs_its_package_is_a_part_of_it(place: Any, imported: str) -> None:
    (place.folder / "src" / "shop").mkdir(parents=True)
    place.write("src/shop/__init__.py", "")
    place.write("src/shop/prices.py", "def price(): return 12")
    place.write("src/shop/desk.py", f"{imported}\n@perdure.agent\ndef quote() -> int: return price()")
    result = place.perdure("run", "src/shop/desk.py:quote")
    assert (result.code, result.out) == (0, "12\n"), result


def test_only_agent_of_a_file_needs_no_name(agent: Any) -> None:
    assert agent.perdure("run", "work.py:", "pages=1").code == 0


def test_options_for_agents_are_not_lost_on_a_script(agent: Any) -> None:
    result = agent.perdure("run", "--fresh", "work.py", "1")
    assert (result.code, "--fresh is for an agent" in result.err) == (2, True)
    assert not agent.database.exists()


def test_store_that_cannot_be_used_is_named(agent: Any) -> None:
    (agent.folder / "folder").mkdir()
    assert agent.perdure("run", "work.py:report", "pages=1", "--store", "folder").code == 6
    memory = agent.perdure("run", "work.py:report", "pages=1", PERDURE_STORE="memory:")
    assert (memory.code, "The store is memory:" in memory.err) == (2, True)


def test_failed_agent_shows_its_traceback_and_the_same_command_attempts_it_anew(place: Any) -> None:
    place.write(
        "work.py",
        "@perdure.agent\ndef work() -> int:\n    if not os.path.exists('mended'):\n        {}['k']\n    return 1\n",
    )
    result = place.perdure("run", "work.py:work")
    assert result.code == 1, result
    assert "KeyError: 'k'\n" in result.err
    assert "src/perdure" not in result.err
    assert result.err.endswith("     do: mend the cause, then: the same command resumes it\n")
    as_json = place.perdure("run", "work.py:work", "--json")
    assert (as_json.code, as_json.json()["error"]["exit_code"]) == (1, 1)
    (place.folder / "mended").touch()
    assert place.perdure("run", "work.py:work").out == "1\n"
    assert len(runs_of(place)) == 1


def test_run_that_waits_ends_with_3_and_its_next_command_in_the_named_store(place: Any) -> None:
    place.write("work.py", "@perdure.agent\ndef work() -> str:\n    return perdure.ask('Well?').value\n")
    result = place.perdure("run", "work.py:work", "--store", "other.db")
    assert result.code == 3, result
    assert re.search(r"     do: perdure answer \S+ --store other.db <text>\n$", result.err), result


@pytest.mark.parametrize("how", ["", "async "])
def test_control_c_leaves_the_agent_resumable_and_says_so(place: Any, how: str) -> None:
    wait = "await asyncio.sleep(0.01)" if how else "time.sleep(0.01)"
    place.write(
        "work.py",
        f"""
        import asyncio

        @perdure.step
        {how}def first() -> int:
            return 1

        @perdure.agent
        {how}def work() -> int:
            {"await " if how else ""}first()
            print("ready", flush=True)
            while not os.path.exists("quick"):
                {wait}
            return 2
        """,
    )
    process = place.start(*PERDURE, "run", "work.py:work")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    name = runs_of(place)[0]["name"]
    assert err.splitlines()[-3:] == [
        f"perdure: Run {name} was stopped (queued).",
        "   safe: its one completed step is saved.",
        "     do: the same command resumes it",
    ]
    (place.folder / "quick").touch()
    assert place.perdure("run", "work.py:work").code == 0
    assert len(runs_of(place)) == 1


def test_agent_killed_amid_its_effects_repeats_none(place: Any) -> None:
    place.write("work.py", GATED)
    process = place.start(*PERDURE, "run", "work.py:deliver", "number=1", until="at the gate")
    process.kill()
    process.communicate(timeout=30)
    (place.folder / "open").touch()
    assert place.perdure("run", "work.py:deliver", "number=1").code == 0
    assert place.lines("log.txt") == ["send 1 1", "send 1 2", "send 1 3"]


def test_reader_of_our_lines_that_goes_away_does_not_stop_the_run(agent: Any) -> None:
    done = subprocess.run(  # noqa: S602 - a pipe is what is tested
        f"{sys.executable} -P -m perdure run work.py:report pages=30 2>&1 >result.txt | head -n 1",
        shell=True,
        cwd=agent.folder,
        env=agent.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert runs_of(agent)[0]["state"] == "completed"
    assert Path(agent.folder, "result.txt").read_text() == '"sent to ada@example.com"\n'


def test_long_row_of_like_steps_is_not_a_line_for_each(agent: Any) -> None:
    lines = agent.perdure("run", "work.py:report", "pages=500").err.splitlines()
    assert len(lines) < 30
    assert any(re.match(r"  ✔ 500 fetch", line) for line in lines), lines
