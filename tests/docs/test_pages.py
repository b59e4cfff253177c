"""Every page: its files are written, its scripts run and its commands typed, in its order, and print what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

import perdure
from perdure.records import RunState, WaitReason
from tests import warm
from tests.docs.transcripts import (
    DOCS,
    EVERY_PAGE,
    PRETENDED,
    UNBUFFERED,
    Said,
    agrees,
    libraries_of,
    perform,
    steps_of,
)

WORDS = (
    "run",
    "step",
    "attempt",
    "delivery",
    "effect",
    "intent",
    "receipt",
    "doubt",
    "verdict",
    "journal",
    "checkpoint",
    "wait",
    "inbox",
    "resource",
    "mailbox",
    "lease",
    "worker",
    "store",
    "replica",
    "park",
)
EXECUTED = [page for page in EVERY_PAGE if steps_of(page.read_text(encoding="utf-8"))]
COLD = ("tutorial.md",)
"""What a reader types first is executed in new interpreters every time; so is every page in the exhaustive tests."""
LONG = ("frameworks.md", "langchain.md", "openai-agents.md")
"""Scripts of frameworks that take long to load, word for word as for those whose pages are executed every time."""
LOADING = ("mcp.md", "model-server.md", "pydantic-ai.md")
"""Pages whose scripts load the same libraries again and again."""


def named(page: Path) -> str:
    return str(page.relative_to(DOCS))


@pytest.fixture(scope="session")
def plain() -> Iterator[str]:
    """The server of the pages that need nothing but perdure."""
    with warm.serving(**UNBUFFERED) as address:
        yield address


@pytest.mark.parametrize("page", [page for page in EXECUTED if page.name not in (*COLD, *LONG)], ids=named)
def test_every_file_and_command_of_the_page_does_what_it_says(page: Path, tmp_path: Path, plain: str) -> None:
    steps = steps_of(page.read_text(encoding="utf-8"))
    with warm.serving(*libraries_of(steps), **UNBUFFERED) if page.name in LOADING else nullcontext(plain) as server:
        judge(perform(steps, tmp_path, server=server))


@pytest.mark.parametrize(
    "page",
    [page if page.name in COLD else pytest.param(page, marks=pytest.mark.exhaustive) for page in EXECUTED],
    ids=named,
)
def test_every_file_and_command_of_the_page_does_so_in_new_interpreters(page: Path, tmp_path: Path) -> None:
    judge(perform(steps_of(page.read_text(encoding="utf-8")), tmp_path))


def judge(heard: list[tuple[Said, str]]) -> None:
    for said, printed in heard:
        assert agrees(said.printed, printed), f"$ {said.command}\n{printed}"


@pytest.mark.parametrize("page", EVERY_PAGE, ids=named)
def test_no_page_shows_a_fault_of_ours_or_a_place_of_whoever_wrote_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    transcripts = "".join(step.printed for step in steps_of(text) if isinstance(step, Said))
    assert "this is a fault in perdure" not in transcripts
    assert re.search(rf'Traceback .*\n(?! *File "{PRETENDED})', transcripts) is None
    assert re.search(r"/(tmp|home|root|Users)/", text) is None


@pytest.mark.parametrize("word", WORDS)
def test_every_word_of_ours_has_its_paragraph_and_its_line(word: str) -> None:
    assert f"\n## {word.capitalize()}\n\n" in (DOCS / "concepts.md").read_text(encoding="utf-8")
    line = "in doubt" if word == "doubt" else word
    assert f"\n| {line} | " in (DOCS / "glossary.md").read_text(encoding="utf-8")


def test_every_verb_of_waiting_is_explained_with_an_example() -> None:
    text = "".join((DOCS / "guides" / name).read_text(encoding="utf-8") for name in ("people.md", "waits.md"))
    verbs = ("ask", "answer", "sleep", "sleep_until", "wait_for", "signal", "start", "cancel", "pause", "unpause")
    for verb in (*verbs, "progress", "restart_with"):
        assert hasattr(perdure, verb)
        assert f"perdure.{verb}" in text, verb


def test_guide_to_testing_names_every_status_of_a_handle() -> None:
    guide = (DOCS / "guides" / "testing.md").read_text(encoding="utf-8")
    states = [state for state in RunState if state != RunState.WAITING]
    for status in (*states, *(f"waiting ({reason})" for reason in WaitReason)):
        assert f"`{status}`" in guide, status
