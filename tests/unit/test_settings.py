"""Where settings come from, which source decides, and that nothing unusable is passed over."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from perdure.errors import InvalidSettings
from perdure.settings import Settings, configure, current_settings, version_to_pin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("PERDURE_")]:
        monkeypatch.delenv(name)
    configure(**dict.fromkeys(Settings.__struct_fields__))
    yield
    configure(**dict.fromkeys(Settings.__struct_fields__))


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_defaults_need_no_source(tmp_path: Path) -> None:
    assert current_settings(tmp_path) == Settings()
    assert Settings().store == "./.perdure/perdure.db"
    assert Settings().durability == "power"


def test_code_decides_before_environment_before_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, '[tool.perdure]\nstore = "p.db"\ndeliveries = 5\nquiet = true\n')
    assert current_settings(tmp_path) == Settings(store="p.db", deliveries=5, quiet=True)
    monkeypatch.setenv("PERDURE_STORE", "e.db")
    monkeypatch.setenv("PERDURE_DELIVERIES", "6")
    assert current_settings(tmp_path) == Settings(store="e.db", deliveries=6, quiet=True)
    configure(store="c.db")
    assert current_settings(tmp_path) == Settings(store="c.db", deliveries=6, quiet=True)


def test_none_takes_a_choice_back(tmp_path: Path) -> None:
    configure(store="c.db", deliveries=7)
    configure(store=None)
    assert current_settings(tmp_path) == Settings(deliveries=7)


def test_store_may_be_a_path(tmp_path: Path) -> None:
    configure(store=tmp_path / "x.db")
    assert current_settings(tmp_path).store == str(tmp_path / "x.db")


def test_project_is_that_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path, '[tool.perdure]\nstore = "here.db"\n'))
    assert current_settings().store == "here.db"


def test_project_that_was_changed_is_read_again(tmp_path: Path) -> None:
    project(tmp_path, "[tool.perdure]\ndeliveries = 4\n")
    assert current_settings(tmp_path).deliveries == 4
    project(tmp_path, "[tool.perdure]\ndeliveries = 40\n")
    assert current_settings(tmp_path).deliveries == 40


@pytest.mark.parametrize(
    "text", ["", "[project]\nname = 'x'\n", "[tool.other]\nstore = 'x'\n", "[tool.perdure.prices]\n"]
)
def test_project_without_settings_changes_nothing(tmp_path: Path, text: str) -> None:
    assert current_settings(project(tmp_path, text)) == Settings()


def test_table_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="there is no such setting") as refused:
        current_settings(project(tmp_path, "[tool.perdure.tool]\nsend_mail = 'step'\n"))
    assert "did you mean tools in [tool.perdure]" in refused.value.hint


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("deliveries", "9", 9),
        ("stall_seconds", "60.5", 60.5),
        ("quiet", "true", True),
        ("quiet", "0", False),
        ("durability", "process", "process"),
    ],
)
def test_environment_is_read_as_what_the_setting_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    monkeypatch.setenv(f"PERDURE_{name.upper()}", text)
    assert getattr(current_settings(tmp_path), name) == value


@pytest.mark.parametrize(
    "chosen",
    [
        {"stor": "x.db"},
        {"deliveries": 0},
        {"deliveries": "many"},
        {"durability": "sometimes"},
        {"renew_seconds": 0.0},
        {"open_seconds": -1.0},
        {"stall_seconds": 5.0},
        {"quiet": "perhaps"},
        {"store": 7},
    ],
)
def test_unusable_choice_is_refused_and_nothing_is_chosen(tmp_path: Path, chosen: dict[str, object]) -> None:
    with pytest.raises((InvalidSettings, TypeError)):
        configure(**chosen)
    assert current_settings(tmp_path) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        ("PERDURE_STOR", "x.db", "PERDURE_STOR: there is no such setting.", "did you mean PERDURE_STORE? "),
        ("PERDURE_XYZZY", "1", "PERDURE_XYZZY: there is no such setting.", "the settings are: store, "),
        (
            "PERDURE_DELIVERIES",
            "many",
            "PERDURE_DELIVERIES: a whole number is expected, given is 'many'.",
            "mend deliveries, or leave it out: it is 3 then",
        ),
        (
            "PERDURE_RENEW_SECONDS",
            "soon",
            "PERDURE_RENEW_SECONDS: a number is expected, given is 'soon'.",
            "it is 10.0 then",
        ),
        ("PERDURE_QUIET", "perhaps", "PERDURE_QUIET: true or false is expected, given is 'perhaps'.", "false then"),
        (
            "PERDURE_DURABILITY",
            "often",
            "PERDURE_DURABILITY: power or process is expected, given is 'often'.",
            "it is power then",
        ),
        ("PERDURE_DELIVERIES", "0", "PERDURE_DELIVERIES: at least 1 is expected, given is 0.", "it is 3 then"),
        ("PERDURE_VERSION", "a b", "PERDURE_VERSION: a short word is expected, given is 'a b'.", "it is empty then"),
        ("PERDURE_ROOM_MB", "-1", "PERDURE_ROOM_MB: 0 or more is expected, given is -1.", "it is 16.0 then"),
        ("PERDURE_OPEN_SECONDS", "0", "PERDURE_OPEN_SECONDS: more than 0 is expected, given is 0.", "it is 10.0 then"),
    ],
)
def test_unusable_variable_is_named_with_what_is_expected_and_what_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, name: str, value: str, message: str, hint: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSettings) as refused:
        current_settings(tmp_path)
    assert refused.value.message == message
    assert hint in refused.value.hint
    configure(quiet=True)  # is not to blame, and does not complain


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("stor = 'x'", "stor in [tool.perdure] of {path}: there is no such setting."),
        ("deliveries = 'x'", "deliveries in [tool.perdure] of {path}: a whole number is expected, given is 'x'."),
        ("store = 7", "store in [tool.perdure] of {path}: a text is expected, given is of type int."),
        ("store.path = 'x'", "store in [tool.perdure] of {path}: a text is expected, given is of type dict."),
    ],
)
def test_unusable_line_of_the_project_is_named_with_its_file(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        current_settings(project(tmp_path, f"[tool.perdure]\n{line}\n"))
    assert refused.value.message == said.format(path=tmp_path / "pyproject.toml")


def test_settings_that_do_not_fit_each_other_are_named_with_where_each_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, "[tool.perdure]\nrenew_seconds = 40\n")
    monkeypatch.setenv("PERDURE_LEASE_SECONDS", "20")
    with pytest.raises(InvalidSettings) as refused:
        current_settings(tmp_path)
    assert refused.value.message.startswith("PERDURE_LEASE_SECONDS: more than renew_seconds (40) is expected")
    where = f"renew_seconds is from renew_seconds in [tool.perdure] of {tmp_path / 'pyproject.toml'}."
    assert refused.value.message.endswith(where)


def test_settings_that_only_fit_together_may_come_from_different_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, "[tool.perdure]\nrenew_seconds = 1\n")
    monkeypatch.setenv("PERDURE_LEASE_SECONDS", "5")
    monkeypatch.chdir(tmp_path)
    configure(stall_seconds=6.0)
    found = current_settings()
    assert (found.renew_seconds, found.lease_seconds, found.stall_seconds) == (1.0, 5.0, 6.0)


def test_unusable_value_is_refused_also_where_another_source_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, "[tool.perdure]\ndeliveries = 'x'\n")
    monkeypatch.setenv("PERDURE_DELIVERIES", "4")
    with pytest.raises(InvalidSettings, match="a whole number is expected"):
        current_settings(tmp_path)


@pytest.mark.parametrize(
    "text", ["[tool.perdure]\ndeliveries = 0\n", "[tool.perdure\n", "tool = 3\n", "[tool]\nperdure = 3\n"]
)
def test_unusable_project_is_named_with_its_path(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        current_settings(project(tmp_path, text))
    assert str(tmp_path / "pyproject.toml") in refused.value.message


def test_holder_that_beats_is_never_robbed_by_a_setting() -> None:
    with pytest.raises(ValueError, match="robbed between two beats"):
        Settings(renew_seconds=30.0, stall_seconds=30.0)


def test_address_of_the_test_database_is_no_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TEST_POSTGRES", "postgres://localhost")
    assert current_settings(tmp_path) == Settings()


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(InvalidSettings, match="no longer exists"):
        current_settings()


def test_pinning_needs_a_version_to_pin_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_PIN_RUNS", "true")
    with pytest.raises(InvalidSettings, match="no version to pin"):
        version_to_pin()
    monkeypatch.setenv("PERDURE_VERSION", "v1")
    assert version_to_pin() == "v1"
