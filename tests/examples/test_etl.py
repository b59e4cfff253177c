"""etl.py: killed in each of its four steps, no completed step runs again and the result is that of an uncrashed run."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest

from tests.examples.stage import Stage

STEPS = ["extract", "validate", "transform", "load"]
INSIDE = {
    "extract": ("writer.writerow", 1_000),
    "validate": ("writer.writerow", 1_000),
    "transform": ("writer.writerow", 1_000),
    "load": ("warehouse.executemany", 1),
}
RESULTS = {
    2_000: "Summary(rows_extracted=2000, rows_invalid=4, rows_processed=1996, total_cents=199699000)",
    500_000: "Summary(rows_extracted=500000, rows_invalid=1000, rows_processed=499000, total_cents=248246426000)",
}


@pytest.fixture(params=[2_000, pytest.param(500_000, marks=pytest.mark.exhaustive)])
def rows(stage: Stage, request: pytest.FixtureRequest) -> int:
    """How many rows the example works on: fewer than its own number where a kill shows the same with them."""
    many: int = request.param
    text = stage.script.read_text()
    assert "\nROWS = 500_000\n" in text
    stage.script.write_text(text.replace("\nROWS = 500_000\n", f"\nROWS = {many}\n"))
    return many


def _orders(rows: int) -> list[tuple[int, int, int]]:
    """What must be in the warehouse, computed without the pipeline."""
    orders = [(id_, id_ % 1_000, id_ % 9_973 * 100 + id_ % 100) for id_ in range(rows) if id_ % 500]
    assert f"rows_processed={len(orders)}, total_cents={sum(cents for _, _, cents in orders)})" in RESULTS[rows]
    return orders


def _loaded(stage: Stage) -> list[tuple[int, int, int]]:
    with closing(sqlite3.connect(stage.folder / "warehouse.db")) as warehouse:
        return warehouse.execute("SELECT id, customer, cents FROM orders ORDER BY id").fetchall()


def test_uncrashed_the_four_steps_load_all_valid_rows_and_are_shown(stage: Stage, rows: int) -> None:
    ended = stage.run()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, RESULTS[rows]), ended
    assert _loaded(stage) == _orders(rows)
    shown = stage.perdure("show", "-").out
    assert re.findall(rf"✔ ({'|'.join(STEPS)})\b", shown) == STEPS, shown


def test_killed_inside_every_step_each_runs_twice_and_the_result_is_the_same(stage: Stage, rows: int) -> None:
    for step in STEPS:
        line, occurrence = INSIDE[step]
        stage.kill_in(step, line, occurrence=occurrence)
    ended = stage.run()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, RESULTS[rows]), ended
    assert stage.called(*STEPS) == [step for step in STEPS for _ in range(2)]
    assert stage.returned(*STEPS) == STEPS
    assert _loaded(stage) == _orders(rows)
    assert stage.kills == len(STEPS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", STEPS)
def test_killed_inside_a_step_only_that_step_runs_twice_and_the_result_is_the_same(
    stage: Stage, rows: int, step: str
) -> None:
    line, occurrence = INSIDE[step]
    stage.kill_in(step, line, occurrence=occurrence)
    done = STEPS[: STEPS.index(step)]
    assert stage.called(*STEPS) == [*done, step]
    assert stage.returned(*STEPS) == done

    ended = stage.run()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, RESULTS[rows]), ended
    assert stage.called(*STEPS) == [*done, step, *STEPS[len(done) :]]
    assert stage.returned(*STEPS) == STEPS
    assert _loaded(stage) == _orders(rows)
    assert stage.kills == 1
