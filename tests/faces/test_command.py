"""The command as a whole: help, wrong input, colour, encodings, pipes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from perdure.cli import COMMANDS

ESCAPE = "\x1b["


def on_a_terminal(place: Any, *arguments: str, **environment: str) -> str:
    """What a command shows on a terminal of its own."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "perdure", *arguments],
        cwd=place.folder,
        env={**place.environment, "TERM": "xterm-256color", **environment},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:
        pass  # the terminal ends with its last process
    process.wait(timeout=30)
    os.close(ours)
    return shown.decode()


def test_perdure_and_python_m_perdure_are_one_command(place: Any) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["perdure"] == "perdure.cli:main"
    result = place.perdure("--version")
    assert result.out == f"perdure, version {project['project']['version']}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(place: Any, command: str) -> None:
    assert f"\n  {command} " in place.perdure("--help").out
    result = place.perdure(command, "-h")
    assert result.code == 0, result
    assert result.out.startswith(f"Usage: perdure {command} ")
    assert "--store PATH" in result.out
    assert max(map(len, result.out.splitlines())) <= 100


@pytest.mark.parametrize("arguments", [["resme"], ["show", "--jsno"], ["settle"], ["show", "a", "b"], ["--store"]])
def test_wrong_usage_ends_with_2(place: Any, arguments: list[str]) -> None:
    result = place.perdure(*arguments)
    assert result.code == 2, result
    assert result.err.startswith("perdure: ")
    assert "   safe: nothing was changed.\n     do: " in result.err
    assert "Traceback" not in result.err


def test_store_may_be_named_before_or_after_the_command(place: Any) -> None:
    place.perdure("--store", "one.db", "demo", "--fast")
    for arguments in (["--store", "one.db", "show"], ["show", "--store", "one.db"]):
        result = place.perdure(*arguments)
        assert result.code == 0, result
        assert "next: perdure resume " in result.out
        assert result.out.rstrip().endswith("--store one.db")
    assert place.perdure("show", PERDURE_STORE="one.db").code == 0
    assert place.perdure("show", "--store", "").code == 2


def test_colour_is_for_terminals_that_want_it(place: Any) -> None:
    plain = place.perdure("demo", "--fast").out + place.perdure("show").out + place.perdure("show", "-").out
    assert ESCAPE not in plain
    assert ESCAPE in on_a_terminal(place, "show")
    assert ESCAPE not in on_a_terminal(place, "show", NO_COLOR="1")
    assert ESCAPE not in on_a_terminal(place, "show", TERM="dumb")


def test_terminal_shows_the_same_lines_as_a_file(place: Any) -> None:
    place.perdure("demo", "--fast")
    shown = on_a_terminal(place, "show", "-", NO_COLOR="1").replace("\r\n", "\n")
    assert shown == place.perdure("show", "-").out


def test_terminal_without_unicode_is_no_error(place: Any) -> None:
    result = place.perdure("demo", "--fast", PYTHONIOENCODING="latin-1")
    assert result.code == 0, result
    assert "? 47 send_report" in result.out


def test_reader_that_goes_away_is_no_error_of_ours(place: Any) -> None:
    place.perdure("demo", "--fast")
    for command in ("show -", "show - --json", "verify", "--help", "demo --fast"):
        done = subprocess.run(  # noqa: S602 - a pipe is what is tested
            f"{sys.executable} -P -m perdure {command} | true",
            shell=True,
            cwd=place.folder,
            env=place.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == "", command


def test_fault_of_ours_is_named_without_a_traceback(place: Any) -> None:
    place.write(
        "broken.py",
        """
        import perdure.cli.runs
        import perdure.cli.show
        perdure.cli.show.every_run = lambda store: 1 // 0
        from perdure.cli import main
        sys.exit(main(["show"]))
        """,
    )
    place.perdure("demo", "--fast")
    result = place.python("broken.py")
    assert result.code == 1, result
    assert result.err.startswith("perdure: ZeroDivisionError: integer division or modulo by zero (broken.py, line ")
    assert "Traceback" not in result.err
    assert "     do: this is a fault in perdure" in result.err


def test_a_file_in_the_folder_is_not_mistaken_for_a_module(place: Any) -> None:
    (place.folder / "msgspec.py").write_text("raise SystemExit('wrong module')")
    (place.folder / "signal.py").write_text("raise SystemExit('wrong module')")
    assert place.perdure("demo", "--fast").code == 0
    assert place.perdure("resume").code == 0
