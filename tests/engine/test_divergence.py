"""Changed code parks a run and shows the difference; the original code still resumes it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import JournalDiverged
from perdure.records import Kind
from tests.engine.journals import bodies_of, records_of, state_of
from tests.engine.world import world


@dataclass
class Flight:
    number: str


@dataclass
class Journey:
    stops: list[str]


@perdure.step
def search(query: str) -> str:
    world.note(f"search {query}")
    return f"found {query}"


@perdure.step
def rank(found: str) -> str:
    world.note(f"rank {found}")
    return f"ranked {found}"


@perdure.step
def extra() -> str:
    world.note("extra")
    return "extra"


@perdure.effect
def book(flight: str) -> str:
    world.note(f"book {flight}")
    return f"booked {flight}"


def original(query: str) -> str:
    ranked = rank(search(query))
    world.moment("ranked")
    return book(ranked)


def renamed(query: str) -> str:
    @perdure.step
    def look_up(query: str) -> str:
        world.note("look_up")
        return f"found {query}"

    return book(rank(look_up(query)))


def removed(query: str) -> str:
    return book(rank(f"found {query}"))


def reordered(query: str) -> str:
    rank(f"found {query}")
    return book(search(query))


def inserted(query: str) -> str:
    found = search(query)
    extra()
    return book(rank(found))


def changed_arguments(query: str) -> str:
    return book(rank(search(query.upper())))


def left_over(query: str) -> str:
    return search(query)


def other_kind(query: str) -> str:
    @perdure.effect(name="search")
    def search_effect(query: str) -> str:
        world.note("effect")
        return f"found {query}"

    return book(rank(search_effect(query)))


CHANGES: dict[Callable[[str], str], tuple[str, str]] = {
    renamed: ("search(query='LH')", "look_up(query='LH')"),
    removed: ("search(query='LH')", "rank(found='found LH')"),
    reordered: ("search(query='LH')", "rank(found='found LH')"),
    inserted: ("rank(found='found LH')", "extra()"),
    changed_arguments: ("search(query='LH')", "search(query='LH')"),
    left_over: ("rank(found='found LH')", "without making this call"),
    other_kind: ("search(query='LH'), a step", "search(query='LH'), an effect"),
}

code: list[Callable[[str], str]] = [original]


@perdure.agent
def agent(query: str) -> str:
    return code[0](query)


@pytest.fixture(autouse=True)
def original_code() -> None:
    code[0] = original


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_call_parks_the_run_and_the_original_code_resumes_it(change: Callable[[str], str]) -> None:
    world.killed_at("ranked", lambda: perdure.run(agent, "lh" if change is changed_arguments else "LH", run_id="r"))
    before = world.lines
    code[0] = change
    query = "lh" if change is changed_arguments else "LH"
    for _ in range(2):
        with pytest.raises(JournalDiverged) as caught:
            perdure.run(agent, query, run_id="r")
    recorded, now = CHANGES[change]
    lines = caught.value.message.replace("'lh'", "'LH'").replace("found lh", "found LH").splitlines()
    assert recorded in lines[1]
    assert now in lines[2]
    assert "patched" in caught.value.hint
    assert state_of("r") == "waiting (parked)"
    assert world.lines == before
    code[0] = original
    assert perdure.run(agent, query, run_id="r") == f"booked ranked found {query}"
    assert world.lines == [*before, f"book ranked found {query}"]


def test_a_change_of_nothing_but_words_resumes() -> None:
    world.killed_at("ranked", lambda: perdure.run(agent, "LH", run_id="r"))

    def commented(query: str) -> str:
        """Says what it does."""
        # Every query is looked up, and what was found is ranked.
        found = search(query=query)
        best = rank(found)
        return book(flight=best)

    code[0] = commented
    assert perdure.run(agent, "LH", run_id="r") == "booked ranked found LH"


def test_a_call_appended_after_what_is_recorded_resumes() -> None:
    world.killed_at("ranked", lambda: perdure.run(agent, "LH", run_id="r"))

    def appended(query: str) -> str:
        ranked = rank(search(query))
        extra()
        return book(ranked)

    code[0] = appended
    assert perdure.run(agent, "LH", run_id="r") == "booked ranked found LH"
    assert world.lines[-2:] == ["extra", "book ranked found LH"]


def test_long_arguments_that_look_alike_are_said_to_differ() -> None:
    suffix = ["a"]

    @perdure.agent
    def agent() -> str:
        found = search("x" * 500 + suffix[0])
        world.moment("found")
        return found

    world.killed_at("found", lambda: perdure.run(agent, run_id="r"))
    suffix[0] = "b"
    with pytest.raises(JournalDiverged, match="with other arguments"):
        perdure.run(agent, run_id="r")


@pytest.mark.parametrize("how", ["task", "thread", "agent"])
def test_a_scope_that_ends_before_its_records_stops_the_run_before_the_next_effect(how: str) -> None:
    shorter = [False]

    def strand() -> str:
        first = search("a")
        return first if shorter[0] else search("b")

    async def strand_async() -> str:
        return strand()

    @perdure.agent
    def inner() -> str:
        return strand()

    @perdure.agent
    async def agent() -> str:
        if how == "task":
            found = await asyncio.create_task(strand_async())
        elif how == "thread":
            thread = threading.Thread(target=strand)
            thread.start()
            await asyncio.to_thread(thread.join)
            found = "joined"
        else:
            found = inner()
        world.moment("found")
        return book(found)

    world.killed_at("found", lambda: perdure.run(agent, run_id="r"))
    shorter[0] = True
    with pytest.raises(JournalDiverged, match=r"search\(query='b'\)"):
        perdure.run(agent, run_id="r")
    assert world.lines == ["search a", "search b"]
    shorter[0] = False
    perdure.run(agent, run_id="r")
    assert world.lines[2:] == ["book joined" if how == "thread" else "book found b"]


@pytest.mark.parametrize("how", ["task", "thread", "agent"])
def test_an_effect_moved_into_another_scope_parks_the_run_and_is_not_performed_there(how: str) -> None:
    moved = [False]

    async def strand() -> str:
        return await book_async("LH")

    @perdure.effect
    async def book_async(flight: str) -> str:
        world.note(f"book {flight}")
        return flight

    @perdure.agent
    async def inner() -> str:
        return await book_async("LH")

    @perdure.agent
    async def agent() -> str:
        if not moved[0]:
            found = await book_async("LH") if how != "thread" else book("LH")
        elif how == "task":
            found = await asyncio.create_task(strand())
        elif how == "thread":
            found = await asyncio.to_thread(book, "LH")
        else:
            found = await inner()
        world.moment("booked")
        return found

    world.killed_at("booked", lambda: perdure.run(agent, run_id="r"))
    moved[0] = True
    with pytest.raises(JournalDiverged, match="at another place"):
        perdure.run(agent, run_id="r")
    assert world.lines == ["book LH"]
    moved[0] = False
    assert "LH" in perdure.run(agent, run_id="r")


def test_strands_that_perform_the_same_effect_are_not_taken_for_moved_ones() -> None:
    @perdure.effect
    async def ping() -> str:
        world.note("ping")
        return "pong"

    @perdure.agent
    async def agent() -> list[str]:
        """The first strand has pinged when the process dies; resumed, the second comes to its own ping before it."""
        is_first_run = world.count("ping") == 0

        async def strand(rounds: int) -> str:
            for _ in range(rounds):
                await asyncio.sleep(0.001)
            return await ping()

        first = asyncio.create_task(strand(0 if is_first_run else 20))
        if is_first_run:
            await first
            world.moment("one")
        return list(await asyncio.gather(first, asyncio.create_task(strand(1))))

    world.killed_at("one", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == ["pong", "pong"]
    assert world.lines == ["ping", "ping"]


def test_an_agent_that_swallows_the_signal_of_a_divergence_stays_parked() -> None:
    world.killed_at("ranked", lambda: perdure.run(agent, "LH", run_id="r"))

    def swallowing(query: str) -> str:
        try:
            extra()
        except BaseException:  # noqa: BLE001 - the worst an agent can do
            return "went on"
        return "never"

    code[0] = swallowing
    with pytest.raises(JournalDiverged):
        perdure.run(agent, "LH", run_id="r")
    assert state_of("r") == "waiting (parked)"


def test_an_agent_that_swallows_the_signal_of_a_divergence_is_given_nothing_recorded_either() -> None:
    world.killed_at("ranked", lambda: perdure.run(agent, "LH", run_id="r"))

    def swallowing(query: str) -> str:
        try:
            extra()
        except BaseException:  # noqa: BLE001 - the worst an agent can do
            world.note(rank(f"found {query}"))
        return "never"

    code[0] = swallowing
    with pytest.raises(JournalDiverged):
        perdure.run(agent, "LH", run_id="r")
    assert world.lines == ["search LH", "rank found LH"]


def test_a_recorded_result_that_no_longer_fits_its_type_parks_the_run() -> None:
    kind: list[Any] = [Flight]

    def booked() -> Any:
        return Flight("LH 1") if kind[0] is Flight else Journey(["LH 1"])

    def current_step() -> Callable[[], Any]:
        booked.__annotations__["return"] = kind[0]
        return perdure.step(booked)

    @perdure.agent
    def agent() -> str:
        found = current_step()()
        world.moment("booked")
        return book(repr(found))

    world.killed_at("booked", lambda: perdure.run(agent, run_id="r"))
    kind[0] = Journey
    with pytest.raises(JournalDiverged, match="the recorded result of booked no longer fits its return type"):
        perdure.run(agent, run_id="r")
    assert state_of("r") == "waiting (parked)"
    kind[0] = Flight
    assert perdure.run(agent, run_id="r") == "booked Flight(number='LH 1')"


def test_a_large_value_that_is_gone_stops_the_run_and_is_not_taken_for_a_failure_of_the_step(store: Path) -> None:
    @perdure.step
    def large() -> str:
        return "x" * 100_000

    @perdure.agent
    def agent() -> str:
        try:
            found = large()
        except Exception:  # noqa: BLE001 - what agents do
            found = "fallback"
        world.moment("found")
        return book(found[:10])

    world.killed_at("found", lambda: perdure.run(agent, run_id="r"))
    _delete_blobs(store)
    with pytest.raises(perdure.errors.CheckpointCorrupt, match="is missing"):
        perdure.run(agent, run_id="r")
    assert world.lines == []


def _delete_blobs(store: Path) -> None:
    connection = apsw.Connection(str(store))
    connection.execute("DELETE FROM blobs")
    connection.close()


def test_a_parked_run_says_why_in_its_journal() -> None:
    world.killed_at("ranked", lambda: perdure.run(agent, "LH", run_id="r"))
    code[0] = renamed
    with pytest.raises(JournalDiverged):
        perdure.run(agent, "LH", run_id="r")
    ended = bodies_of("r", Kind.ENDED)[-1]
    assert (ended.state, ended.reason, ended.code) == ("waiting", "parked", "journal_diverged")
    assert "look_up" in ended.message
    assert len(records_of("r", Kind.STEP)) == 2
