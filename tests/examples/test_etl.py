"""etl.py: killed in each of its four steps, no completed step runs again and the result is that of an uncrashed run."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from tests.examples.stage import Stage

STEPS = ["extract", "validate", "transform", "load"]
INSIDE = {
    "extract": ("extract", "writer.writerow", 10_000),
    "validate": ("validate", "writer.writerow", 10_000),
    "transform": ("transform", "writer.writerow", 10_000),
    "load": ("load", "warehouse.executemany", 1),
}
RESULT = "Loaded(rows_processed=499000, rows_invalid=1000, total_cents=248246426000)"
SUMS = (499_000, 248_246_426_000, 499 * 999)


def _sums(stage: Stage) -> tuple[int, int, int]:
    """What is in the warehouse: how many orders, for how much, by how many customers, each counted once."""
    with closing(sqlite3.connect(stage.folder / "warehouse.db")) as warehouse:
        found: tuple[int, int, int] = warehouse.execute(
            "SELECT count(*), sum(cents), count(DISTINCT customer) FROM orders"
        ).fetchone()
    return found


def _names(counted: Counter[str]) -> dict[str, int]:
    """How often, by the function alone."""
    names: Counter[str] = Counter()
    for call, times in counted.items():
        names[call.partition(" ")[0]] += times
    return dict(names)


def test_uncrashed_the_four_steps_load_all_valid_rows_and_are_shown(stage: Stage) -> None:
    ended = stage.run()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, RESULT), ended
    assert _sums(stage) == (499_000, 248_246_426_000, 1_000)
    shown = stage.perdure("show", "-").out
    assert [name for name in STEPS if f"✔ {name}(" in shown] == STEPS, shown


@pytest.mark.parametrize("step", STEPS)
def test_killed_inside_a_step_only_that_step_runs_twice(stage: Stage, step: str) -> None:
    function, line, occurrence = INSIDE[step]
    stage.kill_in(function, line, occurrence=occurrence)
    assert _names(stage.calls(*STEPS)) == dict.fromkeys(STEPS[: STEPS.index(step) + 1], 1)
    before = STEPS[: STEPS.index(step)]
    assert _names(stage.returns(*STEPS)) == dict.fromkeys(before, 1)

    ended = stage.run()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, RESULT), ended
    assert _names(stage.calls(*STEPS)) == {**dict.fromkeys(STEPS, 1), step: 2}
    assert _names(stage.returns(*STEPS)) == dict.fromkeys(STEPS, 1)
    assert _sums(stage) == (499_000, 248_246_426_000, 1_000)
    assert stage.kills == 1
