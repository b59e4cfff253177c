"""An agent of fifty steps for the campaigns: steps, retries, effects of every policy, on an event loop and in threads.

Each execution of a body is one line in the file CRASH_BODIES, written with a single append: the dead are counted too.
"""

from __future__ import annotations

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import perdure
from tests.crash import killer
from tests.crash.outside import World

RUN_ID: Final = "fifty"
STEPS: Final = 50
FAILED_ATTEMPTS: Final = 4
LARGE: Final = 5_000
"""So often repeated, a text is too large to be kept inside its record."""

IN_FLIGHT_SECONDS: Final = 1.2
"""How long a request of a dead sender may still land; the delayed outside is well below it."""


class Unready(Exception):
    """What the flaky step meets twice."""


def world() -> World:
    return World(int(os.environ["CRASH_PORT"]), os.environ["CRASH_WORLD"], killer.moment)


def executed() -> tuple[str, int]:
    """Note that a body runs now; its key, and which attempt it is."""
    current = perdure.current()
    descriptor = os.open(os.environ["CRASH_BODIES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{os.getpid()} {current.key} {current.attempt}\n".encode())
    os.close(descriptor)
    return current.key, current.attempt


@perdure.step
def note(stamp: str) -> str:
    executed()
    return "noted"


@perdure.step
def plan(leg: int) -> str:
    executed()
    return f"plan/{leg}"


@perdure.step
def survey(leg: int) -> str:
    executed()
    return f"survey/{leg}/" * LARGE


@perdure.step
async def search(city: int) -> str:
    executed()
    await asyncio.sleep(0)
    return f"search/{city}"


@perdure.step(retry=perdure.Retry(attempts=4, delay_seconds=0.001))
def flaky(leg: int) -> str:
    _, attempt = executed()
    if attempt < 3:
        raise Unready(f"attempt {attempt}")
    return f"flaky/{leg}/{attempt}"


@perdure.step
def closed(leg: int) -> str:
    executed()
    raise ValueError(f"no way through {leg}")


@perdure.effect(keyed=True)
def charge(what: str) -> str:
    key, attempt = executed()
    return world().perform("charge", what, key=key, attempt=attempt, honours_key=True)


@perdure.effect(keyed=True)
async def charge_later(what: str) -> str:
    key, attempt = executed()
    return await asyncio.to_thread(world().perform, "charge_later", what, key=key, attempt=attempt, honours_key=True)


@perdure.effect(in_flight_seconds=IN_FLIGHT_SECONDS)
def mail(what: str) -> str:
    key, attempt = executed()
    return world().perform("mail", what, key=key, attempt=attempt)


@mail.check
def was_mailed(intent: perdure.Intent) -> perdure.Verdict:
    return _looked_up(intent)


@perdure.effect(in_flight_seconds=IN_FLIGHT_SECONDS)
async def mail_later(what: str) -> str:
    key, attempt = executed()
    return await asyncio.to_thread(world().perform, "mail_later", what, key=key, attempt=attempt)


@mail_later.check
async def was_mailed_later(intent: perdure.Intent) -> perdure.Verdict:
    return await asyncio.to_thread(_looked_up, intent)


@perdure.effect
def post(what: str) -> str:
    key, attempt = executed()
    return world().perform("post", what, key=key, attempt=attempt)


@perdure.effect
async def post_later(what: str) -> str:
    key, attempt = executed()
    return await asyncio.to_thread(world().perform, "post_later", what, key=key, attempt=attempt)


PLAIN: Final = frozenset({"post", "post_later"})
"""Effects that only a person can settle."""


def _looked_up(intent: perdure.Intent) -> perdure.Verdict:
    killer.moment("checking", f"{intent.name}:{intent.arguments['what']}")
    receipt = world().lookup(intent.name, intent.key)
    return perdure.happened(receipt) if receipt else perdure.did_not_happen()


async def excursion(number: int) -> list[str]:
    """A strand of its own: what it does stands beside what the other excursions do."""
    found = await search(100 + number)
    paid = await charge_later(f"excursion-{number}")
    return [found, paid, await search(200 + number)]


def packing(number: int) -> list[str]:
    """A strand in a thread: a step, and in every other one an effect that nobody can check."""
    packed = [plan(300 + number)]
    if number % 2:
        packed.append(post(f"packing-{number}"))
    return packed


@perdure.agent
async def journey(traveller: str) -> list[str]:
    diary = [note(str(perdure.uuid()))]  # 2: a recorded value as an argument diverges if it is not replayed
    diary += [plan(leg) for leg in range(4)]  # 6
    diary += await asyncio.gather(*(search(city) for city in range(4)))  # 10
    for strand in await asyncio.gather(*(excursion(number) for number in range(3))):  # 19
        diary += strand
    diary.append(flaky(0))  # 20
    try:
        closed(0)  # 21
    except ValueError as error:
        diary.append(str(error))
    diary += [charge("fare"), mail("ticket"), post("farewell")]  # 24
    diary += await asyncio.gather(*(asyncio.to_thread(plan, 400 + leg) for leg in range(3)))  # 27
    diary += await asyncio.gather(*(post_later(f"card-{number}") for number in range(2)))  # 29
    diary += await asyncio.gather(*(mail_later(f"letter-{number}") for number in range(2)))  # 31
    with ThreadPoolExecutor(max_workers=3) as pool:  # 37
        for strand in pool.map(packing, range(4)):
            diary += strand
    diary += await asyncio.gather(asyncio.to_thread(mail, "thread"), asyncio.to_thread(charge, "thread"))  # 39
    diary.append(flaky(1))  # 40
    perdure.current().state["surveyed"] = [len(survey(leg)) for leg in range(2)]  # 42
    diary += [plan(500 + leg) for leg in range(3)]  # 45
    diary += [post("arrival"), mail("arrival"), charge("arrival")]  # 48
    diary += [await search(999), plan(999)]  # 50
    return [*diary, f"surveyed {perdure.current().state['surveyed']}"]


def main() -> None:
    killer.arm()
    print(json.dumps(perdure.run(journey, "ada", run_id=RUN_ID)))
