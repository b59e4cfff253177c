"""The code a worker is given: what is wrong with it is said in three lines, with the places, and nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faces.conftest import Place, Result

ONE = "@perdure.agent\ndef job() -> int:\n    return 1\n"


def refused(place: Place, *apps: str) -> Result:
    result = place.perdure("worker", *apps, "--log", "lines")
    assert result.code == 2, result
    lines = result.err.splitlines()
    assert len(lines) == 3, result
    assert lines[1] == "   safe: nothing was started."
    assert lines[2].startswith("     do: ")
    assert not place.database.exists()
    return result


def test_error_in_user_code_names_the_users_own_lines(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("helper.py", "import json\ndef read():\n    return json.loads('{')\n")
    place.write("app.py", "import helper\nhelper.read()\n" + ONE)
    result = refused(place, "app.py")
    assert "app.py cannot be loaded: JSONDecodeError: " in result.err
    assert "(app.py, line 4 → helper.py, line 5)" in result.err
    assert "do: mend helper.py, line 5, then try again: return json.loads('{')" in result.err
    assert "json/decoder.py" not in result.err


def test_missing_import_names_the_line(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("app.py", "import no_such_thing\n")
    result = refused(place, "app.py")
    assert "ModuleNotFoundError: No module named 'no_such_thing' (app.py, line 3)" in result.err


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("nowhere.py", "nowhere.py does not exist."),
        ("no.such.module", "no.such.module is neither a file nor a module here"),
        ("folder", "folder is a directory."),
        ("empty.py", "empty.py has no agent."),
        ("starts.py", "starts.py starts a run as soon as it is loaded."),
        ("exits.py", "SystemExit: 3 (exits.py, line 3)"),
    ],
)
def test_unusable_file_or_module_is_refused(tmp_path: Path, app: str, words: str) -> None:
    place = Place(tmp_path)
    (tmp_path / "folder").mkdir()
    place.write("empty.py", "")
    place.write("starts.py", ONE + "perdure.run(job)\n")
    place.write("exits.py", "sys.exit(3)\n")
    assert words in refused(place, app).err


def test_two_agents_with_one_name_in_a_file_are_refused_with_both_places(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("app.py", ONE + ONE)
    assert "Two agents are called app.job: app.py, line 3, and app.py, line 6." in refused(place, "app.py").err
    place.write("app.py", ONE + "@perdure.agent(name='app.job')\ndef other() -> int:\n    return 2\n")
    assert "Two agents are called app.job: app.py, line 3, and app.py, line 6." in refused(place, "app.py").err


def test_two_agents_with_one_name_in_two_files_are_refused_with_both_places(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        place.write(f"{folder}/app.py", ONE)
    result = refused(place, "one/app.py", "two/app.py")
    assert "Two agents are called app.job: one/app.py, line 3, and two/app.py, line 3." in result.err
    place.write("a.py", ONE.replace("@perdure.agent", "@perdure.agent(name='mail')"))
    place.write("b.py", "\n" + ONE.replace("@perdure.agent", "@perdure.agent(name='mail')"))
    assert "Two agents are called mail: a.py, line 3, and b.py, line 4." in refused(place, "a.py", "b.py").err


def test_one_agent_that_two_files_know_is_one(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("shared.py", ONE)
    place.write("app.py", "from shared import job\n@perdure.agent\ndef other() -> int:\n    return job()\n")
    place.perdure("start", "app.py:other")
    result = place.perdure("resume", "--all", "--app", "app.py", "--app", "shared.py")
    assert result.code == 0, result
    assert "1 completed" in result.err + result.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--grace", "nan"), "--grace nan is no time to wait"),
        (("--grace", "-1"), "--grace -1 is no time to wait"),
        (("--grace", "inf"), "--grace inf is no time to wait"),
        (("--log", "xml"), "--log is lines or json, not 'xml'"),
    ],
)
def test_option_that_cannot_be_meant_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    place = Place(tmp_path)
    place.write("app.py", ONE)
    result = place.perdure("worker", "app.py", *words)
    assert result.code == 2, result
    assert said in result.err
