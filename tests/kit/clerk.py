"""Agents for the tests of the crash kit: every kind of call once, and some that do wrong on purpose."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request

import perdure


def post(name: str, payload: str, key: str = "") -> str:
    """Do something to the outside."""
    headers = {"Idempotency-Key": key} if key else {}
    address = f"{os.environ['PERDURE_CRASH_OUTSIDE']}/{name}"
    request = urllib.request.Request(address, payload.encode(), headers)  # noqa: S310 - an address of the loopback
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return str(json.load(answer)["receipt"])


def posted(name: str, key: str) -> bool:
    """Whether the outside has it."""
    with urllib.request.urlopen(f"{os.environ['PERDURE_CRASH_OUTSIDE']}/{name}") as answer:  # noqa: S310
        return any(each["key"] == key for each in json.load(answer))


@perdure.step
def look(number: int) -> int:
    return number * 2


@perdure.effect
def mail(to: str) -> str:
    return f"mailed {to}"


@perdure.effect
def letter(to: str) -> str:
    return post("letter", to)


@perdure.effect(keyed=True)
def charge(cents: int) -> str:
    return post("charge", str(cents), key=perdure.current().key)


@perdure.effect
def parcel(what: str) -> str:
    return post("parcel", what, key=perdure.current().key)


@parcel.check
def was_sent(intent: perdure.Intent) -> perdure.Verdict:
    return perdure.happened("parcel-1") if posted("parcel", intent.key) else perdure.did_not_happen()


@perdure.agent
def office(number: int) -> list[str | int]:
    return [look(number), mail("ada"), letter("bob"), charge(300), parcel("lamp")]


@perdure.agent
def note(number: int) -> str:
    return mail(f"{look(number)}")


@perdure.agent
def mapping(count: int) -> list[str]:
    looked = list(perdure.map(look, range(count)))
    return list(perdure.map(mail, [str(number) for number in looked]))


@perdure.step(retry=perdure.Retry(attempts=3, delay_seconds=30, on=(ConnectionError,)))
async def fetch(number: int) -> int:
    await asyncio.sleep(0)
    if perdure.current().attempt == 1:
        raise ConnectionError("overloaded")
    return number


@perdure.agent
async def crowd(numbers: list[int]) -> int:
    return sum(await asyncio.gather(*(fetch(number) for number in numbers)))


@perdure.agent
def patient(question: str) -> str:
    look(1)
    perdure.sleep("8h")
    answer = perdure.ask(question, options=["red", "blue"])
    return f"{answer.choice} {perdure.wait_for('go')}"


@perdure.agent
def silent() -> str:
    return str(perdure.ask("Which colour?").value)


@perdure.agent
def chancy() -> int:
    for number in range(os.getpid() % 50):
        look(number)
    return 1


@perdure.agent
def unlucky() -> int:
    look(1)
    raise ValueError("no way")


@perdure.step
def stall() -> int:
    while True:
        asyncio.run(asyncio.sleep(1))


@perdure.agent
def endless() -> int:
    return stall()


@perdure.agent
def stamped() -> str:
    return f"{look(1)} {perdure.uuid()}"


@perdure.effect(keyed=True)
def stamp(what: str) -> str:
    return post("stamp", f"{what}, by {os.getpid()}", perdure.current().key)


@perdure.agent
def stamping(what: str) -> str:
    """Sends something else each time, under the same key."""
    return stamp(what)
