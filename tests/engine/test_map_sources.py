"""Where items come from: walked lazily, walked again after a crash, and recognised when they are."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import JournalDiverged, UnstorableValue, UsageError
from perdure.records import Kind
from tests.engine.journals import bodies_of, calls_of, state_of
from tests.engine.world import world

sources: list[Any] = []
"""What the agent walks over, set by each test for each delivery."""


@perdure.step
def use(item: Any) -> Any:
    world.note(f"use {item}")
    world.moment(f"use {item}")
    return item


@perdure.agent
def agent() -> list[Any]:
    return list(perdure.map(use, sources[0], batch=10, seconds=60))


@perdure.agent
def keyed() -> list[Any]:
    return list(perdure.map(use, sources[0], batch=10, seconds=60, key=lambda item: item["id"]))


def interrupted(first: Any, second: Any, *, at: str = "use 25", chosen: Any = agent) -> Any:
    """The result of a run that was killed half way, with one source before and another after."""
    sources[:] = [first]
    world.killed_at(at, lambda: perdure.run(chosen, run_id="r"))
    sources[:] = [second]
    return perdure.run(chosen, run_id="r")


def _numbers(count: int = 40) -> Iterator[int]:
    yield from range(count)


class Pages:
    """A source that can begin in its middle, and tells where it did."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def start(self, at: int) -> Iterator[int]:
        world.note(f"start {at}")
        return iter(range(at, self.count))


@pytest.mark.parametrize(
    "make", [lambda: range(40), lambda: list(range(40)), lambda: _numbers, _numbers, lambda: dict.fromkeys(range(40))]
)
def test_every_kind_of_source_is_walked_again_after_a_crash(make: Any) -> None:
    assert interrupted(make(), make()) == list(range(40))
    assert {world.count(f"use {number}") for number in range(20)} == {1}


def test_the_lines_of_a_file_are_a_source(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{number}\n" for number in range(30)))
    assert interrupted(path.open, path.open, at="use 15\n") == [f"{number}\n" for number in range(30)]


def test_a_restartable_source_begins_at_the_last_batch() -> None:
    assert interrupted(Pages(40), Pages(40)) == list(range(40))
    assert [line for line in world.lines if line.startswith("start")] == ["start 0", "start 10"]


def test_a_restartable_source_that_shifted_parks_the_run() -> None:
    class Shifted(Pages):
        def start(self, at: int) -> Iterator[int]:
            return iter(range(at + 1, self.count + 1))

    with pytest.raises(JournalDiverged, match=r"item 10 was 10\n.*item 10 is 11"):
        interrupted(Pages(40), Shifted(40))


@pytest.mark.parametrize("place", [0, 7, 19])
def test_an_item_that_is_another_one_now_parks_the_run_and_is_named(place: int) -> None:
    other = [*range(place), "another", *range(place + 1, 40)]
    with pytest.raises(
        JournalDiverged, match=rf"recorded: item {place} was {place}\n.*now: +item {place} is 'another'"
    ):
        interrupted(range(40), other)
    assert state_of("r") == "waiting (parked)"
    sources[:] = [range(40)]
    assert perdure.run(agent, run_id="r") == list(range(40))


def test_items_that_only_look_the_same_are_told_apart() -> None:
    long = "x" * 100
    with pytest.raises(JournalDiverged, match=r"item 3 .* which looks the same and is not"):
        interrupted([*range(3), long + "a", *range(4, 40)], [*range(3), long + "b", *range(4, 40)])


def test_items_that_were_not_done_may_change() -> None:
    assert interrupted(range(40), [*range(20), "new"]) == [*range(20), "new"]


def test_a_source_that_shrank_below_what_is_done_parks_the_run() -> None:
    with pytest.raises(JournalDiverged, match=r"recorded: 20 items are done\n.*the source ends after 13 items"):
        interrupted(range(40), range(13))
    assert state_of("r") == "waiting (parked)"


def test_a_source_that_raises_keeps_what_is_done() -> None:
    def breaks() -> Iterator[int]:
        yield from range(15)
        raise OSError("the page cannot be read")

    sources[:] = [breaks]
    with pytest.raises(OSError, match="the page cannot be read"):
        perdure.run(agent, run_id="r")
    assert sum(body.count for body in bodies_of("r", Kind.BATCH)) == 15
    sources[:] = [range(20)]
    assert perdure.run(agent, run_id="r") == list(range(20))
    assert len(world.lines) == 20


@perdure.step
def page(number: int) -> list[int]:
    world.note(f"page {number}")
    return list(range(number * 10, number * 10 + 10))


@perdure.agent
def paged(pages: int) -> list[Any]:
    def items() -> Iterator[int]:
        for number in range(pages):
            yield from page(number)

    found = list(perdure.map(use, items(), batch=10, seconds=60))
    use("after")
    return found


@pytest.mark.parametrize("moment", ["use 25", "use after"])
def test_steps_of_a_source_are_recorded_in_a_place_of_their_own(moment: str) -> None:
    world.killed_at(moment, lambda: perdure.run(paged, 4, run_id="r"))
    assert perdure.run(paged, 4, run_id="r") == list(range(40))
    assert {world.count(f"page {number}") for number in range(4)} == {1}
    assert ("step", "main.1", "use") in calls_of("r")
    assert ("step", "main/items#0.3", "page") in calls_of("r")


def test_items_without_a_value_to_go_by_are_recognised_by_their_key() -> None:
    def items() -> list[dict[str, Any]]:
        return [{"id": f"n{number}", "lock": threading.Lock()} for number in range(15)]

    @perdure.agent
    def agent() -> list[str]:
        return list(perdure.map(lambda item: str(item["id"]), items(), key=lambda item: str(item["id"])))

    assert perdure.run(agent) == [f"n{number}" for number in range(15)]


def test_items_without_a_value_to_go_by_need_a_key() -> None:
    sources[:] = [[1, 2, threading.Lock()]]
    with pytest.raises(UnstorableValue, match="item 2 cannot be recognised after a restart") as refused:
        perdure.run(agent, run_id="r")
    assert "key=lambda" in refused.value.hint
    assert world.lines == ["use 1", "use 2"]


def test_with_a_key_the_rest_of_an_item_may_change() -> None:
    first = [{"id": f"n{number}", "seen": 1} for number in range(30)]
    second = [{"id": f"n{number}", "seen": 2} for number in range(30)]
    found = interrupted(first, second, at=f"use {first[15]}", chosen=keyed)
    assert [item["seen"] for item in found] == [1] * 10 + [2] * 20


@pytest.mark.parametrize("key", [7, "", "x" * 501, None])
def test_a_key_that_is_no_text_is_refused(key: Any) -> None:
    sources[:] = [[{"id": key}]]
    with pytest.raises(UsageError, match=r"key= gave .* for item 0"):
        perdure.run(keyed)
    assert not world.lines


def test_an_async_source_is_refused_with_what_to_do() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1

    for source in (items, items()):
        sources[:] = [source]
        with pytest.raises(UsageError, match="is async"):
            perdure.run(agent, fresh=True)


def test_the_total_is_known_where_the_source_knows_its_length(seen: list[Any]) -> None:
    for source in (range(20), Pages(20), iter(range(20))):
        sources[:] = [source]
        perdure.run(agent, fresh=True)
    totals = [event.total for event in seen if isinstance(event, perdure.events.MapAdvanced) and event.stage == "ended"]
    assert totals == [20, 20, None]
