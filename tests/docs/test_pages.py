"""Every page: its files are written, its scripts run and its commands typed, in its order, and print what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.transcripts import DOCS, EVERY_PAGE, agrees, perform, steps_of

EXECUTED = [page for page in EVERY_PAGE if steps_of(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_file_and_command_of_the_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    for said, printed in perform(steps_of(page.read_text(encoding="utf-8")), tmp_path):
        assert agrees(said.printed, printed), f"$ {said.command}\n{printed}"
