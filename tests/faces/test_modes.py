"""To whom a command speaks: colour for a person at a terminal, plain text for pipes and coding agents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from perdure.cli import COMMANDS, main
from perdure.cli.mode import mode
from tests.faces.terminal import on_a_terminal
from tests.faces.test_command import Stores, filled

ESCAPE = "\x1b"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
QUIET = (
    "crash",
    "demo",
    "run",
    "start",
    "worker",
    "drain",
    "cancel",
    "gc",
    "undo",
    "unpin",
    "pin",
    "migrate",
    "import",
    "export",
    "repair",
    "resume",
    "retry",
)
"""Commands that would change something; they have tests of their own."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("verb", [verb for verb in COMMANDS if verb not in QUIET])
def test_no_command_colours_where_nobody_wants_it(stores: Stores, verb: str) -> None:
    words = [verb, *filled(verb, "twin-1")]
    plain = stores.perdure(*words)
    assert ESCAPE not in plain.out + plain.err
    assert not COLOUR.search(on_a_terminal(stores, *words, NO_COLOR="1"))
    for environment in ({"TERM": "dumb"}, {"AI_AGENT": "1"}, {"CLAUDECODE": "1"}):
        assert ESCAPE not in on_a_terminal(stores, *words, **environment), environment


@pytest.mark.parametrize("verb", ["show", "ls", "inbox"])
def test_terminal_gets_colour(stores: Stores, verb: str) -> None:
    assert COLOUR.search(on_a_terminal(stores, verb, *filled(verb, "twin-1")))
    assert COLOUR.search(on_a_terminal(stores, verb, *filled(verb, "twin-1"), AI_AGENT="0", NO_COLOR=""))


@pytest.mark.parametrize("scenario", ["crash", "fleet"])
def test_demo_rewrites_no_line_where_nobody_watches(place: Any, scenario: str) -> None:
    told = place.perdure("demo", scenario, "--fast")
    assert ESCAPE not in told.out + told.err
    assert "\r" not in told.out
    assert ESCAPE in on_a_terminal(place, "demo", scenario, "--fast")
    assert ESCAPE not in on_a_terminal(place, "demo", scenario, "--fast", CLAUDECODE="1")


def test_pipes_and_coding_agents_get_full_ids(stores: Stores) -> None:
    assert "twin-2" in stores.perdure("inbox").out
    assert "twin-2" in on_a_terminal(stores, "inbox", CLAUDECODE="1")
    assert "twin-2" not in on_a_terminal(stores, "inbox", NO_COLOR="1")


def test_our_lines_and_the_agents_own_do_not_mix(place: Any) -> None:
    place.write(
        "work.py",
        """
        @perdure.step
        def look() -> int:
            print("its own words")
            return 1

        @perdure.agent
        def work() -> int:
            return look()
        """,
    )
    result = place.perdure("run", "work.py:work")
    assert result.code == 0, result
    assert result.out == "its own words\n1\n"
    assert "look" in result.err


def test_a_command_that_answers_programs_leaves_the_process_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["ps", "--json", "--store", str(tmp_path / "nowhere.db")])
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == code
    assert not mode.as_json
