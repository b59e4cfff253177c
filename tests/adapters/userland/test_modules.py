"""Which files are the user's: those of the project that nobody installed."""

from __future__ import annotations

import json
import os
import sysconfig
from pathlib import Path

import pytest

import perdure
from perdure.adapters.userland.modules import Userland, is_perdure, roots_of
from tests.adapters.userland.ground import written


@pytest.mark.parametrize(
    ("file", "is_users"),
    [
        ("script.py", True),
        ("package/module.py", True),
        ("deep/er/still.py", True),
        ("notes.txt", False),
        ("fast.so", False),
        (".venv/lib/python3.11/site-packages/lib.py", False),
        ("vendor/site-packages/lib.py", False),
        ("env/lib/lib.py", False),
        ("conda/lib/lib.py", False),
        ("environment/lib.py", True),
    ],
)
def test_files_below_a_root_are_the_users_unless_they_were_installed(tmp_path: Path, file: str, is_users: bool) -> None:
    written(tmp_path, "", "env/pyvenv.cfg")
    (tmp_path / "conda" / "conda-meta").mkdir(parents=True)
    assert Userland([tmp_path]).owns(str(written(tmp_path, "", file))) is is_users


def test_what_is_elsewhere_is_not_the_users(tmp_path: Path) -> None:
    everything = Userland([Path("/")])
    assert not Userland([tmp_path / "a"]).owns(str(tmp_path / "ab" / "x.py"))
    assert not everything.owns(json.__file__)
    assert not everything.owns(os.__file__)
    assert not everything.owns(pytest.__file__)
    assert not everything.owns(perdure.__file__)
    assert not everything.owns("<string>")
    assert not everything.owns("<frozen importlib._bootstrap>")
    assert everything.owns(str(tmp_path / "x.py"))


def test_a_root_inside_an_environment_is_still_a_root(tmp_path: Path) -> None:
    written(tmp_path, "", "pyvenv.cfg")
    assert Userland([tmp_path / "work"]).owns(str(tmp_path / "work" / "x.py"))
    assert not Userland([tmp_path.parent]).owns(str(tmp_path / "work" / "x.py"))


def test_the_script_is_the_users_wherever_it_lies(tmp_path: Path) -> None:
    script = written(tmp_path, "", "site-packages/tool/agent.txt")
    userland = Userland([], script=script)
    assert userland.owns(str(script))
    assert not userland.owns(str(script.with_name("other.py")))


def test_links_are_followed_in_both_directions(tmp_path: Path) -> None:
    written(tmp_path, "", "real/module.py")
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    assert Userland([tmp_path / "linked"]).owns(str(tmp_path / "real" / "module.py"))
    assert Userland([tmp_path / "real"]).owns(str(tmp_path / "linked" / "module.py"))
    installed = written(tmp_path, "", "lib/site-packages/lib.py")
    (tmp_path / "real" / "alias.py").symlink_to(installed)
    assert not Userland([tmp_path]).owns(str(tmp_path / "real" / "alias.py"))


def test_the_roots_of_a_script_are_its_folder_and_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = written(tmp_path, "", "scripts/agent.py")
    monkeypatch.chdir(tmp_path)
    assert roots_of(Path("scripts/agent.py")) == [script.parent, tmp_path]
    monkeypatch.chdir(script.parent)
    assert roots_of(Path("agent.py")) == [script.parent]


def test_perdure_knows_its_own_files() -> None:
    assert is_perdure(perdure.__file__)
    assert not is_perdure(f"{Path(perdure.__file__).parent}x/module.py")
    assert not is_perdure(sysconfig.__file__)
