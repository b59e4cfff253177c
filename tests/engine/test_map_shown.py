"""What people see of a map: a bar while it goes on, a line where there is no terminal, a timeline afterwards."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure import events
from perdure.telemetry.bar import Bar, drawn
from tests import warm
from tests.engine.journals import run_of
from tests.engine.world import world

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "map.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
SCRIPT = """
import perdure

@perdure.agent
def agent() -> int:
    return len(perdure.map(abs, range(3000), batch=10))

print(perdure.run(agent))
"""


@perdure.step
def double(number: int) -> int:
    world.moment(f"double {number}")
    return number * 2


@perdure.agent
def doubled() -> int:
    return len(perdure.map(double, range(60), batch=10))


def advanced(
    done: int, total: int | None, *, stage: str = "advanced", failed: int = 0, seconds: float = 1.0
) -> events.MapAdvanced:
    return events.MapAdvanced("r", "calm-owl-1", "map(fetch)", done, total, failed, 50.0, seconds, stage)


def test_the_bar_tells_how_far_and_how_long() -> None:
    assert drawn(advanced(250, 1000)) == "perdure: map(fetch) ██████░░░░░░░░░░░░░░░░░░  25%  250 of 1,000, 15 s left"
    assert drawn(advanced(1000, 1000)).endswith("100%  1,000 of 1,000, 0.0 s left")
    assert drawn(advanced(10, 20, failed=3)).endswith("10 of 20, 3 failed, 0.2 s left")


def test_without_a_length_the_bar_is_a_count() -> None:
    assert drawn(advanced(1250, None)) == "perdure: map(fetch) 1,250 items, 50 a second"


def test_a_source_that_is_longer_than_it_said_does_not_break_the_bar() -> None:
    assert "100%" in drawn(advanced(30, 20))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (advanced(98_000, 100_000, stage="resumed"), "map(fetch) goes on after 98,000 items that are done"),
        (advanced(99_000, 100_000), ""),
        (advanced(100_000, 100_000, stage="ended", seconds=0.5), ""),
        (
            advanced(100_000, 100_000, stage="ended", seconds=90, failed=2),
            "map(fetch): 100,000 items done, 2 failed, 50 a second",
        ),
    ],
)
def test_few_moments_are_worth_a_line(event: events.MapAdvanced, line: str) -> None:
    assert Bar().line(event) == line


def test_on_a_terminal_one_line_moves_and_is_gone_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    mine, theirs = pty.openpty()
    process = warm.Popen([sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    seen = _read_to_end(mine)
    assert process.communicate()[0] == "3000\n"
    assert "\r\x1b[2Kperdure: map(abs) " in seen
    assert " of 3,000" in seen
    assert seen.endswith("\r\x1b[2K")
    assert seen.count("\n") == 1


def test_elsewhere_a_short_map_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = warm.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "3000\n"
    assert done.stderr.count("\n") == 1
    assert "map(abs)" not in done.stderr


def test_the_timeline_tells_how_many_items_are_done(store: Path) -> None:
    world.killed_at("double 35", lambda: perdure.run(doubled, run_id="r"))
    perdure.run(doubled, run_id="r")
    command = [sys.executable, "-m", "perdure", "show", run_of("r").name, "--store", str(store)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"✔ map\(double\)  (\d+ items) done", shown) == ["30 items", "60 items"]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_python_block_of_the_page_runs(number: int, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(BLOCKS[number])
    done = warm.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout
    assert "Traceback" not in done.stderr


def _read_to_end(descriptor: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:
            break  # the other side is closed
        if not part:
            break
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode()
