"""Shell completion, as a real shell asks for it: commands, options and runs that can be meant, and no word else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.cli import COMMANDS
from tests import warm
from tests.faces.conftest import Place
from tests.faces.terminal import line_after_tab
from tests.faces.waiting import ASKING

WARM = """
import sys
from tests import warm
sys.exit(warm.run([sys.executable, "-P", "-m", "perdure", *sys.argv[1:]]).returncode)
"""
"""The command: a shell asks it at every Tab, and most of what it does then is to load."""


@pytest.fixture(scope="module")
def typing(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with a run that asks, one that listens and one that ended, and a shell that finds perdure."""
    place = Place(tmp_path_factory.mktemp("typing"))
    place.write("work.py", ASKING)
    for agent in ("choose", "listen", "late"):
        place.python("work.py", agent)
    programs = place.folder / "bin"
    programs.mkdir()
    program = programs / "perdure"
    program.write_text(f"#!{sys.executable}\n{WARM}")
    program.chmod(0o755)
    place.environment["PATH"] = f"{programs}:{place.environment['PATH']}"
    place.environment["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    place.environment |= warm.addresses()
    (place.folder / "completion.bash").write_text(place.perdure("completion", "bash").out)
    return place


def completed(place: Any, *words: str, **environment: str) -> list[str]:
    """What bash offers for the last of these words."""
    shell = shutil.which("bash")
    assert shell is not None
    typed = " ".join(f"'{word}'" for word in ("perdure", *words))
    asked = subprocess.run(
        [
            shell,
            "--norc",
            "-c",
            f"""
            source completion.bash
            COMP_WORDS=({typed}) COMP_CWORD={len(words)}
            _perdure_completion perdure
            printf '%s\\n' "${{COMPREPLY[@]}}"
            """,
        ],
        cwd=place.folder,
        env={**place.environment, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (asked.returncode, asked.stderr) == (0, ""), asked
    return [line for line in asked.stdout.splitlines() if line]


def test_commands_are_completed(typing: Any) -> None:
    assert completed(typing, "") == list(COMMANDS)
    assert completed(typing, "app") == ["approve"]
    assert completed(typing, "demo", "") == ["crash", "approval", "effect", "fleet"]


def test_options_are_completed(typing: Any) -> None:
    assert {"--json", "--store", "--note", "--question", "--by"} <= set(completed(typing, "approve", "--"))
    assert completed(typing, "inbox", "--pa") == ["--page"]


def test_runs_are_completed_newest_first_by_name_and_by_id(typing: Any) -> None:
    runs = typing.runs()
    assert completed(typing, "show", "") == [run["name"] for run in runs]
    for run in runs:
        assert completed(typing, "show", run["name"][:-1]) == [run["name"]]
        assert run["run_id"] in completed(typing, "show", run["run_id"][:-2])


def test_only_runs_that_can_be_meant_are_offered(typing: Any) -> None:
    by_agent = {run["agent"]: run["name"] for run in typing.runs()}
    assert completed(typing, "cancel", "") == [by_agent["work.listen"], by_agent["work.choose"]]
    assert completed(typing, "settle", "") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("perdure run op", "perdure run ops.py "),
        ("perdure start op", "perdure start ops.py "),
        ("perdure worker op", "perdure worker ops.py "),
        ("perdure resume - --app op", "perdure resume - --app ops.py "),
        ("perdure import ki", "perdure import kind.perdure "),
        ("perdure run ops.py ki", "perdure run ops.py kind.perdure "),
        ("perdure export - -o ki", "perdure export - -o kind.perdure "),
        ("perdure ps --store ki", "perdure ps --store kind.perdure "),
        ("perdure appr", "perdure approve "),
    ],
)
def test_file_names_are_completed_where_a_file_is_meant(typing: Any, line: str, expected: str) -> None:
    (typing.folder / "ops.py").touch()
    (typing.folder / "kind.perdure").touch()
    assert line_after_tab(typing, line) == expected


def test_named_store_is_the_one_that_is_looked_at(typing: Any) -> None:
    typing.python("work.py", "describe", PERDURE_STORE="other.db")
    (name,) = (run["name"] for run in typing.perdure("ls", "--json", PERDURE_STORE="other.db").json()["runs"])
    assert completed(typing, "--store", "other.db", "answer", "") == [name]
    assert completed(typing, "answer", "--store", "other.db", "") == [name]
    assert completed(typing, "answer", "", PERDURE_STORE="other.db") == [name]


def test_nothing_is_said_and_nothing_made_where_there_is_nothing_to_offer(typing: Any) -> None:
    before = sorted(path.name for path in typing.folder.iterdir())
    assert completed(typing, "resume", "", PERDURE_STORE="nowhere.db") == []
    assert completed(typing, "resume", "", PERDURE_STORE="work.py") == []
    assert completed(typing, "resume", "", PERDURE_STORE="memory:") == []
    assert completed(typing, "resume", "", PERDURE_DURABILITY="nonsense") == []
    assert completed(typing, "no-such-command", "") == []
    assert sorted(path.name for path in typing.folder.iterdir()) == before


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_printed_for_each_shell_and_says_how_to_install_it(place: Any, shell: str) -> None:
    result = place.perdure("completion", shell)
    assert result.code == 0, result
    assert f"_PERDURE_COMPLETE={shell}_complete" in result.out
    assert f"perdure completion {shell}" in place.perdure("completion", "--help").out
    whole = place.perdure("completion", shell, "--json").json()
    assert (whole["shell"], whole["script"].strip()) == (shell, result.out.strip())
    assert f"perdure completion {shell}" in whole["install"]
    assert list(place.folder.iterdir()) == []
    known = shutil.which(shell)
    if known is not None:
        subprocess.run([known, "-n"], input=result.out, text=True, check=True, capture_output=True)
