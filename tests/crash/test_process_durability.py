"""In process mode a step is not synced; a killed process loses none of what it acknowledged all the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.crash.trial import KILLED
from tests.crash.workshop import PATIENCE_SECONDS, Workshop

PROCESS = {"PERDURE_DURABILITY": "process"}


@pytest.mark.parametrize("acknowledge", [1, 333, 1000])
def test_a_killed_process_loses_no_acknowledged_step(tmp_path: Path, acknowledge: int) -> None:
    workshop = Workshop(tmp_path / "place" / "perdure.db", tmp_path, count=1200)
    with workshop.start(**PROCESS) as process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(workshop.noted("acknowledged")) < acknowledge:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.001)  # who reads all the time takes half of what the process could do
        process.kill()
        process.communicate()
    assert process.returncode == KILLED
    acknowledged, lost = workshop.acknowledged(), workshop.lost()
    in_doubt = workshop.finish(**PROCESS)
    print(f"\nprocess: {len(acknowledged)} acknowledged, {len(lost)} lost, {in_doubt} in doubt")
    assert not lost
    assert len(acknowledged) >= acknowledge
