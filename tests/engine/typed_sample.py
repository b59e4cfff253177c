"""What a user writes, as strict type checkers see it: decorators keep the types they are put on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import assert_type

import perdure


@dataclass
class Flight:
    number: str
    cents: int


@perdure.step
def search(query: str) -> list[Flight]:
    return [Flight(query, 1)]


@perdure.step(retry=perdure.Retry(attempts=3, on=(OSError,)), timeout=30, key=lambda query: query)
async def search_async(query: str, *, limit: int = 10) -> list[Flight]:
    return [Flight(query, limit)]


@perdure.effect
def send(to: str, body: str) -> str:
    return perdure.current().key


@send.check
def was_sent(intent: perdure.Intent) -> perdure.Verdict:
    if intent.attempt > 3:
        return perdure.cannot_tell("too often")
    return perdure.happened(intent.key) if intent.arguments else perdure.did_not_happen()


def refund(receipt: str, flight: Flight) -> None:
    print(receipt, flight)


@perdure.effect(keyed=True, undo=refund, certain=(ConnectionError,), in_flight_seconds=0)
async def charge(flight: Flight) -> str:
    return perdure.current().key


@charge.check
async def was_charged(intent: perdure.Intent) -> perdure.Verdict:
    return perdure.cannot_tell()


@perdure.agent
def book(query: str, *, at_most: int = 100) -> Flight:
    found = search(query)
    assert_type(found, list[Flight])
    assert_type(send("ada", "body"), str)
    assert_type(perdure.patched("change"), bool)
    assert_type(perdure.random(), float)
    return found[0]


@perdure.agent(undo_on_failure=True, durability="process")
async def book_async(query: str) -> tuple[Flight, str]:
    found = await search_async(query, limit=3)
    assert_type(found, list[Flight])
    receipt = await charge(found[0])
    assert_type(receipt, str)
    both = await asyncio.gather(search_async("a"), charge(found[0]))
    assert_type(both, tuple[list[Flight], str])
    return found[0], receipt


async def outside() -> None:
    assert_type(await book_async("LH"), tuple[Flight, str])
    assert_type(await perdure.start(book_async, "LH"), tuple[Flight, str])


def main() -> None:
    assert_type(perdure.run(book, "LH", at_most=3), Flight)
    assert_type(perdure.run(book_async, "LH", run_id="r", fresh=False), tuple[Flight, str])
    handle = perdure.start(book, "LH")
    assert_type(handle, perdure.Handle[Flight])
    assert_type(handle.result(timeout=3), Flight)
    assert_type(handle.status(), str)


# What the decorators must not let pass, each with the complaint it has to cause.
search(7)  # type: ignore[arg-type]
search_async("a", limit="b")  # type: ignore[arg-type, unused-coroutine]
send("ada")  # type: ignore[call-arg]
book(query=3)  # type: ignore[arg-type]


@send.check  # type: ignore[type-var]
def wrong(intent: str) -> bool:
    return True
