"""How tools recover: as the project declares, as their server says, else as effects; never as nobody said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.adapters.tools.policy import Policies, Policy
from perdure.errors import InvalidSettings
from perdure.settings import current_settings

AGENT, EFFECT, STEP = Policy.AGENT, Policy.EFFECT, Policy.STEP


def declared(folder: Path, text: str) -> Policies:
    """What a project declares with these lines."""
    (folder / "pyproject.toml").write_text(f"[tool.perdure.tools]\n{text}\n")
    return Policies.load(folder)


def test_an_undeclared_tool_is_an_effect(tmp_path: Path) -> None:
    assert Policies.load(tmp_path).of("send") is EFFECT
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert Policies.load(tmp_path).of("send") is EFFECT


def test_a_tool_is_what_the_project_declares(tmp_path: Path) -> None:
    policies = declared(tmp_path, '"search_*" = "step"\nsend = "effect"\nresearch = "agent"')
    assert [policies.of(name) for name in ("search_web", "send", "research")] == [STEP, EFFECT, AGENT]
    assert [policies.of(name) for name in ("Search_web", "search", "re_search_x")] == [EFFECT] * 3
    assert current_settings(tmp_path)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ('"*" = "step"\n"send*" = "effect"', "send_mail", EFFECT),
        ('"send*" = "effect"\n"*" = "step"', "send_mail", EFFECT),
        ('"send*" = "effect"\n"send_note*" = "step"', "send_notes", STEP),
        ('"send*" = "effect"\nsend_note = "step"', "send_note", STEP),
        ('"*_mail" = "step"\n"send_*" = "effect"', "send_mail", EFFECT),
        ('"send_*" = "effect"\n"*_mail" = "step"', "send_mail", EFFECT),
        ('"get_?" = "step"\n"get_*" = "effect"', "get_a", STEP),
        ('"a[bc]" = "step"', "ab", STEP),
        ('"a[bc]" = "step"', "ad", EFFECT),
        ('"a[bc]" = "step"', "a[bc]", STEP),
    ],
)
def test_the_name_itself_decides_then_the_closest_pattern(
    tmp_path: Path, text: str, name: str, expected: Policy
) -> None:
    assert declared(tmp_path, text).of(name) is expected


def test_names_with_dots_need_no_quotes(tmp_path: Path) -> None:
    policies = declared(tmp_path, 'github.search = "step"\n"mail.*" = "step"')
    assert policies.of("github.search") is STEP
    assert policies.of("mail.read") is STEP


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (None, EFFECT),
        ({}, EFFECT),
        ({"readOnlyHint": True}, STEP),
        ({"idempotentHint": True}, STEP),
        ({"destructiveHint": True}, EFFECT),
        ({"destructiveHint": False}, EFFECT),
        ({"readOnlyHint": False, "idempotentHint": False}, EFFECT),
        ({"readOnlyHint": "true"}, EFFECT),
        ({"idempotentHint": True, "destructiveHint": True}, STEP),
        (SimpleNamespace(readOnlyHint=True), STEP),
        (SimpleNamespace(read_only_hint=True), STEP),
        (SimpleNamespace(readOnlyHint=None, idempotentHint=None), EFFECT),
    ],
)
def test_a_server_says_what_its_tool_is(tmp_path: Path, annotations: Any, expected: Policy) -> None:
    assert Policies().of("tool", annotations) is expected
    assert declared(tmp_path, '"to*" = "agent"').of("tool", annotations) is AGENT


def test_what_needs_no_mention_is_declared_beside_the_tools(tmp_path: Path) -> None:
    policies = declared(tmp_path, '"open logs/*" = "step"\n"*" = "step"')
    assert policies.silent() == ("open logs/*",)
    assert Policies().silent() == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.perdure.tools]\nsend = 'once'", "step, effect or agent is expected, given is 'once'"),
        ("[tool.perdure.tools]\nsend = true", "given is True"),
        ("[tool.perdure.tools]\nsend = ['step']", "send in [tool.perdure.tools]"),
        ("[tool.perdure.tools.git]\npush = 1", "git.push in [tool.perdure.tools]"),
        ("[tool.perdure.tools]\n'open x' = 'effect'", "only a tool can be an effect"),
        ("[tool.perdure]\ntools = 1", "is no table"),
        ("[tool.perdure.tools]\nsearch_* = 'step'", "cannot be read"),
        ("\ufeff[", "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_hint(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(InvalidSettings) as refused:
        Policies.load(tmp_path)
    assert said in refused.value.message
    assert refused.value.safe == "nothing was started."
    assert refused.value.hint


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidSettings, match="cannot be read"):
        Policies.load(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "pyproject.toml").mkdir()
    with pytest.raises(InvalidSettings, match="cannot be read"):
        Policies.load(tmp_path / "folder")
