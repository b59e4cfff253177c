"""The command as a whole: help, wrong input, encodings, pipes; what holds for every command is asked of every one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw
import click
import pytest

from perdure.cli import COMMANDS
from perdure.cli import perdure as root
from tests import warm
from tests.faces.conftest import Place, Result
from tests.faces.many import many

MAKE_A_STORE = ("demo", "run", "start", "worker", "import", "migrate", "doctor", "completion", "crash")
"""Commands that begin something, bring it along, or look at the machine."""

NEED_NO_STORE = ("completion", "doctor", "import", "crash")
"""Commands that never come to a store, that look at one which cannot be opened, or that look at their file first."""

LOOKING = (["--help"], ["ps"], ["ls"], ["inbox"], ["show"], ["logs", "-"], ["verify"], ["doctor"])
LIGHT = {"perdure.engine", "perdure.engine.mailbox", "perdure.engine.whereabouts"}
"""What of the engine only reads records."""

LOADED = """
import json, os, sys
from perdure.cli import main
for arguments in json.loads(sys.argv[1]):
    if not os.fork():
        code = main(arguments)
        engine = [name for name in sys.modules if name.startswith("perdure.engine")]
        print("loaded:", code, *engine, file=sys.stderr, flush=True)
        os._exit(0)
    os.wait()
"""
"""What each command line has loaded of the engine, in a process of its own that had loaded the command alone."""

TWINS = """
    @perdure.agent
    def twin(number: int = 0) -> str:
        return perdure.ask("Which?").value

    if __name__ == "__main__":
        for number in (1, 2):
            try:
                perdure.run(twin, number, run_id=f"twin-{number}")
            except perdure.errors.RunWaits:
                pass
"""


class Stores(Place):
    """A folder with two stores: one with two runs, and one that a newer perdure wrote."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.write("work.py", TWINS)
        self.python("work.py")
        self.whole = "./.perdure/perdure.db"
        self.newer = folder / "newer.db"
        self.python("work.py", PERDURE_STORE=str(self.newer))
        connection = apsw.Connection(str(self.newer))
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA user_version = 9999")
        connection.close()


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


def refusals(
    place: Place,
    verbs: Iterable[str],
    typed: Callable[[str], list[str]],
    code: int,
    json_words: Sequence[str] = ("--json",),
    **environment: str,
) -> list[tuple[str, dict[str, Any]]]:
    """Each command with the error it ends with, typed for a person and for a program; they say the same."""
    verbs = list(verbs)
    plain = [lines_of(result, code) for result in many(place, map(typed, verbs), **environment)]
    if not json_words:
        return [(verb, {"message": lines[0]}) for verb, lines in zip(verbs, plain, strict=True)]
    programs = many(place, ([*typed(verb), *json_words] for verb in verbs), **environment)
    errors = [error_of(result, code) for result in programs]
    for lines, error in zip(plain, errors, strict=True):
        assert lines == [error["message"], error["safe"], error["hint"]]
    return list(zip(verbs, errors, strict=True))


def lines_of(result: Result, code: int) -> list[str]:
    """A refusal as a person gets it: three lines on standard error, and nothing else."""
    assert (result.code, result.out) == (code, ""), result
    lines = result.err.splitlines()
    assert [line[:9] for line in lines] == ["perdure: ", "   safe: ", "     do: "], result
    return [line[9:] for line in lines]


def error_of(result: Result, code: int) -> dict[str, Any]:
    """A refusal as a program gets it: one object on standard output, and nothing else."""
    assert (result.code, result.err) == (code, ""), result
    whole: dict[str, dict[str, Any]] = json.loads(result.out)
    assert list(whole) == ["error"], result
    assert sorted(whole["error"]) == ["code", "exit_code", "hint", "message", "safe"]
    assert whole["error"]["exit_code"] == code
    return whole["error"]


def arguments_of(verb: str) -> list[click.Argument]:
    command = root.get_command(click.Context(root), verb)
    assert command is not None
    return [parameter for parameter in command.params if isinstance(parameter, click.Argument)]


def needed(verb: str) -> list[click.Argument]:
    return [argument for argument in arguments_of(verb) if argument.required]


def takes_run(verb: str) -> bool:
    return any(argument.name == "run" for argument in arguments_of(verb))


def filled(verb: str, run: str) -> list[str]:
    """Words with which this command gets as far as the store."""
    known = {"run": run, "runs": run, "step": "1", "target": "work.py:twin", "scenario": "crash", "shell": "bash"}
    known["app"] = known["apps"] = "work.py"
    wanted = [argument for argument in arguments_of(verb) if argument.required or argument.name in ("run", "runs")]
    words = [known.get(str(argument.name), "x") for argument in wanted]
    return [*words, *{"settle": ["--fail"], "answer": ["x"], "drain": ["--all"]}.get(verb, [])]


def test_perdure_and_python_m_perdure_are_one_command(place: Any) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["perdure"] == "perdure.__main__:main"
    result = place.perdure("--version")
    assert result.out == f"perdure, version {project['project']['version']}\n"


def test_every_command_explains_itself(place: Any) -> None:
    for verb, result in zip(COMMANDS, many(place, ([verb, "--help"] for verb in COMMANDS)), strict=True):
        assert result.code == 0, result
        assert result.out.startswith(f"Usage: perdure {verb} ")
        assert "--store PATH" in result.out
        assert "--json" in result.out
        assert max(map(len, result.out.splitlines())) <= 100, result


def test_help_lists_every_command_in_its_order(place: Any) -> None:
    shown = place.perdure("--help").out
    listed = shown.partition("\nBegin:\n")[2].splitlines()
    assert [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "] == list(COMMANDS)
    assert max(map(len, shown.splitlines())) <= 80
    assert "..." not in "".join(listed)
    assert place.perdure("-h").out == shown


def test_mistyped_command_names_the_one_that_was_meant(place: Any) -> None:
    for verb, error in refusals(place, COMMANDS, lambda verb: [f"{verb}x"], 2):
        assert error["message"] == f"There is no command '{verb}x'."
        assert f"perdure {verb}" in error["hint"].partition("?")[0]


def test_mistyped_option_names_the_one_that_was_meant(place: Any) -> None:
    for verb, error in refusals(place, COMMANDS, lambda verb: [verb, "--stroe"], 2):
        assert error["message"] == f"{verb} has no option --stroe."
        assert error["hint"] == f"did you mean --store? perdure {verb} --help lists them"


def test_missing_argument_is_named_with_how_to_type_the_command(place: Any) -> None:
    for verb, error in refusals(place, filter(needed, COMMANDS), lambda verb: [verb], 2):
        first = needed(verb)[0]
        named = first.metavar or str(first.name).upper()
        assert error["message"] == f"{verb} needs {named}."
        assert error["hint"].startswith(f"perdure {verb} {named}")


def test_option_without_its_value_and_a_word_too_many_are_refused(place: Any) -> None:
    refusals(place, COMMANDS, lambda verb: [verb, "--store"], 2, json_words=[])
    fixed = [verb for verb in COMMANDS if all(argument.nargs == 1 for argument in arguments_of(verb))]
    refusals(place, fixed, lambda verb: [verb, *["bash"] * (len(arguments_of(verb)) + 1)], 2)


def test_run_that_is_not_there_is_named_with_the_likeliest(stores: Stores) -> None:
    for verb, error in refusals(stores, filter(takes_run, COMMANDS), lambda verb: [verb, *filled(verb, "twn-1")], 2):
        assert error["message"] == f"There is no run 'twn-1' among the 2 runs in {stores.whole}.", verb
        assert "lists them" in error["hint"]


def test_beginning_of_several_runs_is_refused_with_their_names(stores: Stores) -> None:
    for verb, error in refusals(stores, filter(takes_run, COMMANDS), lambda verb: [verb, *filled(verb, "twin-")], 2):
        assert error["message"].startswith("2 runs begin with 'twin-': "), verb
        assert error["hint"] == "write more of the one you mean"


def test_store_that_is_not_there_is_named_and_not_made(place: Any) -> None:
    verbs = [verb for verb in COMMANDS if verb not in MAKE_A_STORE]
    for verb, error in refusals(place, verbs, lambda verb: [verb, *filled(verb, "-")], 6):
        assert error["message"].startswith("There is no store at "), verb
    assert list(place.folder.iterdir()) == []


def test_store_of_a_newer_perdure_is_refused_and_not_touched(stores: Stores) -> None:
    before = stores.newer.read_bytes()
    verbs = [verb for verb in COMMANDS if verb not in NEED_NO_STORE]
    typed = {"PERDURE_STORE": str(stores.newer)}
    for verb, error in refusals(stores, verbs, lambda verb: [verb, *filled(verb, "-")], 6, **typed):
        assert error["code"] == "schema_too_new", verb
    assert stores.newer.read_bytes() == before


def test_store_may_be_named_before_or_after_the_command(place: Any) -> None:
    place.perdure("--store", "one.db", "demo", "--fast")
    for arguments in (["--store", "one.db", "ls"], ["ls", "--store", "one.db"]):
        result = place.perdure(*arguments)
        assert result.code == 0, result
        assert "next: perdure resume " in result.out
        assert "--store one.db\n" in result.out
    assert place.perdure("ls", PERDURE_STORE="one.db").code == 0
    assert place.perdure("ls", "--store", "").code == 2


def test_terminal_without_unicode_is_no_error(place: Any) -> None:
    result = place.perdure("demo", "--fast", PYTHONIOENCODING="latin-1")
    assert result.code == 0, result
    assert "? 47 send_report" in result.out


def test_reader_that_goes_away_is_no_error_of_ours(place: Any) -> None:
    place.perdure("demo", "--fast")
    for command in ("show -", "show - --json", "verify", "--help", "demo --fast"):
        reading, writing = os.pipe()
        os.close(reading)
        done = warm.run(
            [sys.executable, "-P", "-m", "perdure", *command.split()],
            cwd=place.folder,
            env=place.environment,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        os.close(writing)
        assert done.stderr == "", command


def test_fault_of_ours_is_named_without_a_traceback(place: Any) -> None:
    place.write(
        "broken.py",
        """
        import perdure.cli.inbox
        perdure.cli.inbox._page = lambda store, page: 1 // 0
        from perdure.cli import main
        sys.exit(main(["inbox", *sys.argv[1:]]))
        """,
    )
    place.perdure("demo", "--fast")
    result = place.python("broken.py")
    assert result.code == 1, result
    assert result.err.startswith("perdure: ZeroDivisionError: integer division or modulo by zero (broken.py, line ")
    assert "Traceback" not in result.err
    assert "     do: this is a fault in perdure" in result.err
    as_json = place.python("broken.py", "--json")
    assert (as_json.code, as_json.json()["error"]["code"], as_json.err) == (1, "internal", "")


def test_a_file_in_the_folder_is_not_mistaken_for_a_module(place: Any) -> None:
    (place.folder / "msgspec.py").write_text("raise SystemExit('wrong module')")
    (place.folder / "signal.py").write_text("raise SystemExit('wrong module')")
    assert place.perdure("demo", "--fast").code == 0
    assert place.perdure("resume").code == 0


def test_commands_that_only_look_load_no_engine(place: Any) -> None:
    place.write("work.py", TWINS)
    assert place.python("work.py").code == 0
    told = place.cold("-c", LOADED, json.dumps(LOOKING)).err.splitlines()
    shown = [line.split()[1:] for line in told if line.startswith("loaded: ")]
    for arguments, (code, *loaded) in zip(LOOKING, shown, strict=True):
        assert (code, set(loaded) - LIGHT) == ("0", set()), arguments


def test_every_public_name_is_there_once_one_is_asked_for(place: Any) -> None:
    program = (
        "import sys, perdure; loaded = 'perdure.engine.agent' in sys.modules; perdure.step;"
        "print(loaded, {*perdure.__all__} - vars(perdure).keys(), {*perdure.__all__} - {*dir(perdure)})"
    )
    assert place.cold("-c", program).out == "False set() set()\n"
    assert "module 'perdure' has no attribute 'stepp'" in place.cold("-c", "import perdure; perdure.stepp").err
