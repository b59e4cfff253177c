"""Streams that are closed, full or unread: no command breaks on them, and an exit code tells what was done."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from perdure.cli import COMMANDS
from tests.faces.many import many
from tests.faces.test_command import Stores, filled

PAYING = """
    @perdure.effect
    def pay(who: str) -> str:
        with open("paid.txt", "a") as file:
            file.write(who + "\\n")
        return f"paid {who}"

    @perdure.agent
    def payer(who: str) -> str:
        return pay(who)
"""
HOW = ("full", "closed", "unread")
IN_A_SHELL = ("> /dev/full", ">&-", "| true", "2>/dev/full", "2>&-", "2>&1 | head -0")
BLOCKING = ("worker", "logs")
"""Commands that would follow something."""
QUICK = {"crash": ["work.py:nobody"], "demo": ["--fast"]}
"""What ends at once: a campaign that comes to the same error takes longer than all other commands, and so does a demo
that somebody is to read."""

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


def in_a_shell(place: Any, line: str) -> subprocess.CompletedProcess[str]:
    command = line.replace("perdure", f"'{sys.executable}' -P -m perdure", 1)
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=place.folder,
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def typed_after(verb: str) -> list[str]:
    """What is typed after a command."""
    return QUICK.get(verb) or filled(verb, "twin-1")


@pytest.mark.parametrize(
    ("stream", "how", "json_words"),
    [
        *(("stdout", how, []) for how in HOW),
        ("stderr", "full", []),
        *(pytest.param("stderr", how, [], marks=pytest.mark.exhaustive) for how in HOW[1:]),
        ("stdout", "full", ["--json"]),
        *(pytest.param("stdout", how, ["--json"], marks=pytest.mark.exhaustive) for how in HOW[1:]),
    ],
)
def test_no_command_breaks_on_a_spoiled_stream(stores: Stores, stream: str, how: str, json_words: list[str]) -> None:
    verbs = [verb for verb in COMMANDS if verb not in BLOCKING]
    lines = [[verb, *typed_after(verb), *json_words] for verb in verbs]
    lines += [["--help"], [], ["ps", "--help"], ["ps", "--stroe", *json_words]]
    for line, result in zip(lines, many(stores, lines, SPOILED=f"{stream} {how}"), strict=True):
        assert "Traceback" not in result.err + result.out, (line, result)
        assert "fault in perdure" not in result.err + result.out, (line, result)
        assert "Exception ignored" not in result.err, (line, result)
        assert result.code in (0, 1, 2, 3, 5, 6, 141), (line, result)


@pytest.mark.parametrize(
    ("spoiled", "json_words"),
    [
        *((how, "") for how in IN_A_SHELL),
        ("> /dev/full", "--json"),
        *(pytest.param(how, "--json", marks=pytest.mark.exhaustive) for how in IN_A_SHELL[1:]),
    ],
)
def test_exit_code_of_a_run_tells_of_the_run(place: Any, spoiled: str, json_words: str) -> None:
    place.write("ops.py", PAYING)
    result = in_a_shell(place, f"perdure run ops.py:payer who=ada {json_words} {spoiled}")
    assert (result.returncode, place.lines("paid.txt")) == (0, ["ada"]), result
    assert "Traceback" not in result.stderr
    if spoiled in ("> /dev/full", ">&-"):
        assert "perdure: the answer could not be written to standard output (" in result.stderr


@pytest.mark.parametrize("how", ["full", "closed"])
def test_command_that_only_looks_says_that_it_could_not_answer(stores: Stores, how: str) -> None:
    looking = [verb for verb in COMMANDS if not COMMANDS[verb].acts and verb not in BLOCKING]
    lines = [[verb, *filled(verb, "twin-1"), *(["0"] if verb == "diff" else [])] for verb in looking]
    for line, result in zip(lines, many(stores, lines, SPOILED=f"stdout {how}"), strict=True):
        assert result.code == 1, (line, result)
        assert result.err.splitlines()[-1].startswith("perdure: the answer could not be written"), (line, result)


def test_what_went_wrong_is_said_where_it_still_can_be(stores: Stores) -> None:
    (result,) = many(stores, [["show", "nobody", "--json"]], SPOILED="stdout full")
    assert result.code == 2
    assert "There is no run 'nobody'" in result.err


def test_export_that_nobody_got_is_an_error(stores: Stores) -> None:
    for how in HOW:
        (result,) = many(stores, [["export", "twin-1", "-o", "-"]], SPOILED=f"stdout {how}")
        assert result.code in (1, 141), result
