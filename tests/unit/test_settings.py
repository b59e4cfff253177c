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


@pytest.mark.parametrize(("name", "value"), [("PERDURE_STOR", "x.db"), ("PERDURE_DELIVERIES", "x")])
def test_unusable_environment_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSettings, match="environment") as refused:
        current_settings(tmp_path)
    assert "deliveries" in refused.value.hint


@pytest.mark.parametrize(
    "text", ["[tool.perdure]\nstor = 'x'\n", "[tool.perdure]\ndeliveries = 0\n", "[tool.perdure\n"]
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
