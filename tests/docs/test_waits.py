"""docs/waits.md: its files are run and its commands typed, in its order, and print what it says."""

from __future__ import annotations

from pathlib import Path

import perdure
from tests.docs.transcripts import Said, perform, settled, steps_of

PAGE = (Path(__file__).parents[2] / "docs" / "waits.md").read_text(encoding="utf-8")


def test_every_file_and_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    steps = steps_of(PAGE)
    assert len(steps) > 25
    for step in steps:
        if isinstance(step, Said):
            printed = perform(step.command, tmp_path)
            assert settled(printed) == settled(step.printed), f"$ {step.command}\n{printed}"
        else:
            name, text = step
            (tmp_path / name).write_text(text, encoding="utf-8")


def test_every_verb_of_waiting_is_on_the_page() -> None:
    verbs = ("ask", "answer", "sleep", "sleep_until", "wait_for", "signal", "start", "cancel", "pause", "unpause")
    for verb in (*verbs, "progress", "restart_with"):
        assert hasattr(perdure, verb)
        assert f"perdure.{verb}" in PAGE, verb
