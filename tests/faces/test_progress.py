"""The lines that stand beside a run as it goes on: the numbers are those of `perdure show`, and gaps are seen."""

from __future__ import annotations

import re
from typing import Any

import pytest

STEPS = """
    @perdure.step
    def think(number: int) -> int:
        return number

    @perdure.effect(keyed=True, certain=(ValueError,))
    def pay(number: int) -> int:
        if not os.path.exists("mended") and number == 1:
            if os.environ.get("KILL"):
                os.kill(os.getpid(), 9)
            raise ValueError("no")
        return number

    @perdure.agent
    def work() -> int:
        think(0)
        perdure.sleep(0.01)
        pay(0)
        try:
            pay(1)
        finally:
            think(2)
        return think(3)

    @perdure.agent
    def slow() -> None:
        for number in range(6):
            time.sleep(0.55)
            think(number)
"""
LINE = re.compile(r"^  \S +(\d+) (\S+)", re.MULTILINE)


def numbers_shown(place: Any) -> dict[int, str]:
    """The steps by number, as `perdure show` has them."""
    moments = place.perdure("show", "-", "--json").json()["timeline"]
    return {moment["number"]: moment["name"] for moment in moments if moment.get("number")}


@pytest.mark.parametrize("how", ["retry", "run", "resume"])
@pytest.mark.parametrize("kill", ["", "1"])
def test_number_of_a_step_is_the_one_that_show_gives_it(place: Any, how: str, kill: str) -> None:
    place.write("work.py", STEPS)
    first = place.perdure("run", "work.py:work", KILL=kill)
    (place.folder / "mended").touch()
    if kill and how == "retry":
        return  # a run that died is resumed
    words = ["run", "work.py:work"] if how == "run" else [how, "-", "--app", "work.py"]
    second = place.perdure(*words)
    assert second.code == 0, second
    shown = numbers_shown(place)
    told = [(int(number), name) for result in (first, second) for number, name in LINE.findall(result.err)]
    assert {name for _, name in told} >= {"think", "pay", "sleep"} - ({"sleep"} if kill else set())
    for number, name in told:
        assert shown[number] == name, (shown, first, second)


def test_steps_that_are_left_out_of_a_row_leave_a_mark(place: Any) -> None:
    place.write("work.py", STEPS)
    result = place.perdure("run", "work.py:slow")
    assert result.code == 0, result
    before, is_gap = 0, False
    for line in result.err.splitlines():
        if found := LINE.match(line):
            number = int(found[1])
            assert number == before + 1 or is_gap, result
            before = number
        is_gap = line.strip() == "…"
