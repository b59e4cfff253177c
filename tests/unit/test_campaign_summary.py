"""The table at the end of a test run: what each campaign counted, and what that comes to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import summary


@pytest.fixture(autouse=True)
def notes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "notes"
    folder.mkdir()
    with monkeypatch.context() as context:
        context.setenv(summary.NOTES, str(folder / f"{os.getpid()}"))
        yield


def test_summary_has_a_line_for_each_campaign_their_sum_and_what_it_comes_to() -> None:
    summary.note("crowd", trials=2, landed={"kills": 3}, planned=3)
    summary.note("crowd", trials=1, landed={"kills": 1, "freezes": 2}, planned=4, lost=1)
    summary.note("disks", trials=1, landed={"full disks": 1}, planned=1, in_effect=1, in_doubt=5)
    notes = summary.end()
    _, _, crowd, disks, _, total = summary.table(notes)
    assert crowd.split() == ["crowd", "3", "7", "0", "0", "0", "0", "1", "0", "2", "freezes,", "4", "kills"]
    assert disks.split() == ["disks", "1", "1", "1", "5", "0", "0", "0", "0", "1", "full", "disks"]
    assert total.split()[:10] == ["in", "all", "4", "8", "1", "5", "0", "0", "1", "0"]
    assert total.endswith("2 freezes, 1 full disks, 4 kills")
    assert summary.verdict(notes, failed=0) == "7 faults landed, 1 of them inside effects; 1 losses found"
    assert summary.verdict(notes, failed=2).endswith("; 1 losses found, and 2 tests failed")


@pytest.mark.parametrize("landed", [{}, {"kills": 0}])
def test_campaign_in_which_no_fault_landed_fails_and_is_told(landed: dict[str, int]) -> None:
    with pytest.raises(AssertionError, match="crowd: 0 faults landed"):
        summary.note("crowd", trials=2, landed=landed, planned=2)
    (told,) = summary.end()
    assert sum(told.landed.values()) == 0
    assert "none" in list(summary.table([told]))[2]
