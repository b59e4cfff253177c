"""Agents for the modes: effects of every policy, alone and several at once, all done to the oracle's outside."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import perdure


def ask_outside(name: str, payload: str | None = None, *, key: str = "") -> Any:
    """Have something done to the outside, or look at what was done; the answer."""
    address = f"{os.environ['PERDURE_CRASH_OUTSIDE']}/{name}"
    headers = {"Idempotency-Key": key} if key else {}
    data = None if payload is None else payload.encode()
    request = urllib.request.Request(address, data=data, headers=headers)  # noqa: S310 - an address of the loopback
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return json.load(answer)


@perdure.step
def plan(leg: int) -> str:
    return f"plan/{leg}"


@perdure.step
async def search(city: int) -> str:
    await asyncio.sleep(0)
    return f"search/{city}"


@perdure.effect
def post(what: str) -> str:
    ask_outside("post", what)
    return "done"


@perdure.effect
async def post_later(what: str) -> str:
    await asyncio.to_thread(ask_outside, "post_later", what)
    return "done"


@perdure.effect(keyed=True)
def charge(what: str) -> str:
    ask_outside("charge", what, key=perdure.current().key)
    return "done"


@perdure.effect(keyed=True)
async def charge_later(what: str) -> str:
    await asyncio.to_thread(ask_outside, "charge_later", what, key=perdure.current().key)
    return "done"


@perdure.effect
def mail(what: str) -> str:
    ask_outside("mail", what)
    return "done"


@mail.check
def was_mailed(intent: perdure.Intent) -> perdure.Verdict:
    return looked_up(intent)


@perdure.effect
async def mail_later(what: str) -> str:
    await asyncio.to_thread(ask_outside, "mail_later", what)
    return "done"


@mail_later.check
async def was_mailed_later(intent: perdure.Intent) -> perdure.Verdict:
    return await asyncio.to_thread(looked_up, intent)


def looked_up(intent: perdure.Intent) -> perdure.Verdict:
    done = [each["payload"] for each in ask_outside(intent.name)]
    return perdure.happened("done") if intent.arguments["what"] in done else perdure.did_not_happen()


@perdure.agent
def errand(parcel: str) -> list[str]:
    """A step, one effect of each policy, a step."""
    return [plan(1), post(parcel), mail(parcel), charge(parcel), plan(2)]


@perdure.agent
def thinker(legs: int) -> list[str]:
    """Only steps."""
    return [plan(leg) for leg in range(legs)]


@perdure.agent
async def rounds(parcel: str) -> list[str]:
    """Effects of every policy, one after the other, on an event loop and in threads at once."""
    diary = [plan(1), post(f"{parcel}-1"), mail(f"{parcel}-1"), charge(f"{parcel}-1")]
    diary += await asyncio.gather(*(post_later(f"{parcel}-{number}") for number in range(2, 4)))
    diary += await asyncio.gather(mail_later(f"{parcel}-2"), charge_later(f"{parcel}-2"), search(2))
    with ThreadPoolExecutor(max_workers=3) as pool:
        diary += pool.map(perform, (post, mail, charge), [f"{parcel}-9"] * 3)
    return [*diary, await search(3), plan(3)]


def perform(effect: Any, what: str) -> str:
    done: str = effect(what)
    return done
