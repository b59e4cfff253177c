"""`run_command`: bounded, killed whole, noticed as an orphan, settled by what it creates."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import tools
from perdure.errors import UsageError
from tests.tools.workbench import Workbench


def shell(*lines: str) -> list[str]:
    return ["sh", "-c", "\n".join(lines)]


def gate(path: Path) -> str:
    """Wait in a shell until the test writes into a pipe of this name."""
    os.mkfifo(path)
    return f"read -r _ < {shlex.quote(str(path))}"


def until_gone(pid: int) -> None:
    """A killed process ends when the kernel comes to it; whoever is its parent may not have asked for it yet."""
    status = Path(f"/proc/{pid}/stat")
    until = time.monotonic() + 60
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while status.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < until, f"process {pid} lives on"
            time.sleep(0.01)


KILL_AGENT = 'kill -9 "$PPID"'


def test_a_command_returns_its_exit_code_and_output_and_a_replay_does_not_run_it(work: Path) -> None:
    @perdure.agent
    def agent() -> tools.Finished:
        line = "cat; echo ran >> log; echo $NAME >&2; exit 3"
        return tools.run_command(shell(line), cwd=work, env={"NAME": "ada"}, input="given")

    for _ in range(2):
        assert perdure.run(agent, run_id="r") == tools.Finished(3, "given", "ada\n")
    assert (work / "log").read_text() == "ran\n"


def test_output_of_any_length_is_kept_at_both_ends(work: Path) -> None:
    code = "import sys; sys.stdout.write('a' * 3_000_000 + 'z' * 3_000_000); sys.stderr.write('e' * 10)"
    found = tools.run_command([sys.executable, "-c", code], max_bytes=100)
    assert found.stdout == "a" * 50 + "\n[… 5999900 bytes left out …]\n" + "z" * 50
    assert found.stderr == "e" * 10


def test_input_that_nobody_reads_and_output_nobody_ends_do_not_hang(work: Path) -> None:
    assert tools.run_command(["true"], input="x" * 1_000_000).exit_code == 0
    held = gate(work / "gate")
    assert tools.run_command(shell(f"({held}) & echo started")).stdout == "started\n"
    (work / "gate").write_text("go\n")


def test_a_timeout_kills_the_whole_process_group_and_is_told(work: Path) -> None:
    pids = work / "pids"
    held = gate(work / "gate")
    line = f"sh -c 'echo $$ >> {pids}; {held}' & echo $$ >> {pids}; echo begun; wait"
    found = tools.run_command(shell(line), timeout=0.5)
    assert (found.exit_code, found.timed_out, found.stdout) == (-9, True, "begun\n")
    for pid in pids.read_text().split():
        until_gone(int(pid))


def test_killed_in_the_middle_the_command_is_in_doubt_and_not_started_again(bench: Workbench) -> None:
    log = bench.work / "log"
    arguments = {"args": shell(f"echo ran >> {log}", KILL_AGENT)}
    bench.expect_killed("run_command", arguments)
    for _ in range(2):
        assert "nobody saw how it ended" in bench.expect_doubt("run_command", arguments)
    assert log.read_text() == "ran\n"


@pytest.mark.parametrize("finishes", [True, False])
def test_killed_in_the_middle_what_it_creates_settles_it(bench: Workbench, finishes: bool) -> None:
    log, made = bench.work / "log", bench.work / "made"
    once = bench.work / "once"
    kill = f"if mkdir {once}; then {KILL_AGENT}; {'true' if finishes else 'exit 1'}; fi"
    arguments = {"args": shell(f"echo ran >> {log}", kill, f"touch {made}"), "creates": str(made)}
    bench.expect_killed("run_command", arguments)
    bench.expect_done("run_command", arguments)
    assert made.exists()
    assert log.read_text() == ("ran\n" if finishes else "ran\nran\n")


def test_an_orphan_is_waited_for_and_never_joined_by_a_second(bench: Workbench) -> None:
    log, made = bench.work / "log", bench.work / "made"
    held = gate(bench.work / "gate")
    arguments = {"args": shell(f"echo ran >> {log}", KILL_AGENT, held, f"touch {made}"), "creates": str(made)}
    bench.expect_killed("run_command", arguments)
    resumed = bench.start("run_command", arguments)
    bench.wait_for_look(resumed)
    (bench.work / "gate").write_text("go\n")
    assert resumed.wait(60) == 0
    assert log.read_text() == "ran\n"


def test_an_orphan_that_outlives_its_timeout_is_named_to_a_person(bench: Workbench) -> None:
    log, made = bench.work / "log", bench.work / "made"
    held = gate(bench.work / "gate")
    lines = shell(f"echo ran >> {log}", KILL_AGENT, held, f"touch {made}")
    arguments = {"args": lines, "creates": str(made), "timeout": 2.0}
    bench.expect_killed("run_command", arguments)
    assert "it still runs (to see it: fuser -v " in bench.expect_doubt("run_command", arguments)
    assert log.read_text() == "ran\n"
    (bench.work / "gate").write_text("go\n")


def test_what_is_there_already_is_not_made_again(work: Path) -> None:
    (work / "made").touch()
    found = tools.run_command(shell("echo ran >> log"), cwd=work, creates="made")
    assert found == tools.Finished(0, "", "", was_done=True)
    assert not (work / "log").exists()


def test_a_program_that_does_not_exist_is_an_ordinary_failure(work: Path) -> None:
    @perdure.agent
    def agent() -> int:
        return tools.run_command(["no-such-program"]).exit_code

    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="no-such-program"):
            perdure.run(agent, run_id="r")


def test_a_command_leaves_no_lifeline_behind(tmp_path: Path) -> None:
    tools.run_command(["true"])
    assert len(list(tmp_path.glob("perdure-commands-*"))) == 1
    assert list(tmp_path.glob("perdure-commands-*/*")) == []


def test_a_folder_for_lifelines_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / f"perdure-commands-{os.getuid()}"
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="only this user can enter"):
        tools.run_command(["true"])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"args": "ls -l"}, "no list of words"),
        ({"args": []}, "no list of words"),
        ({"args": ["sleep", 3]}, "no list of texts"),
        ({"timeout": -1}, "timeout=-1"),
        ({"env": {"A=B": "c"}}, "no environment can hold"),
        ({"input": 3}, "input is a int"),
        ({"cwd": 3}, "cwd=3 is not a path"),
        ({"creates": ""}, "creates='' is not a path"),
        ({"max_bytes": "x"}, "max_bytes='x'"),
    ],
)
def test_a_misused_command_is_told_in_three_lines(given: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        tools.run_command(**{"args": ["true"], **given})
    assert len(raised.value.lines()) == 3
