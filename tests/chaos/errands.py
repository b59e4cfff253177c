"""The code of the campaign's workers: errands of twenty calls, steps and effects of every kind, sync and async.

Every execution of a body leaves a line with a token of its own, and the token is its value: whatever ran and whatever
was recorded can be told apart afterwards. Bodies know the chance they are given, not the faults.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Final

import perdure
from tests.chaos.outside import ANSWER_SECONDS, DELAY_SECONDS, Asked, Outside
from tests.chaos.shape import PLACES, kind_of

IN_FLIGHT_SECONDS: Final = DELAY_SECONDS * 1.3 + 1.0
"""What a sender had sent when it died is done by then, or never."""

_LOG: Final = Path(os.environ.get("CHAOS_EXECUTIONS", "executions.log"))
_PACE: Final = float(os.environ.get("CHAOS_PACE", "0.1"))
_HOST, _PORT = os.environ.get("CHAOS_OUTSIDE", "127.0.0.1:0").split(":")
_OUTSIDE: Final = Outside((_HOST, int(_PORT)))


@perdure.step
def work(number: int, place: int) -> str:
    return _worked(number, place)


@perdure.step
async def work_softly(number: int, place: int) -> str:
    token = _note(place)
    await asyncio.sleep(_seconds(number, place))
    return token


@perdure.effect(keyed=True)
def pay(number: int, place: int) -> str:
    return _performed("keyed", place)


@perdure.effect(in_flight_seconds=IN_FLIGHT_SECONDS)
def post(number: int, place: int) -> str:
    return _performed("checked", place)


@perdure.effect(in_flight_seconds=IN_FLIGHT_SECONDS)
def print_and_post(number: int, place: int) -> str:
    """Takes longer than anything can be in flight before it sends the first byte."""
    time.sleep(IN_FLIGHT_SECONDS * (1 + _chance(number, place)) if _chance(place, number) < 0.3 else _PACE)
    return _performed("late", place)


@post.check
def was_posted(intent: perdure.Intent) -> perdure.Verdict:
    return _looked_up(intent)


@print_and_post.check
def was_printed_and_posted(intent: perdure.Intent) -> perdure.Verdict:
    return _looked_up(intent)


@perdure.effect
def tell(number: int, place: int) -> str:
    return _performed("plain", place)


_EFFECTS: Final = {"keyed": pay, "checked": post, "late": print_and_post, "plain": tell}


@perdure.agent
def errand(number: int) -> str:
    parts = []
    for place in range(PLACES):
        kind = kind_of(number, place)
        parts.append(work(number, place) if kind == "step" else _EFFECTS[kind](number, place))
    return " ".join(parts)


@perdure.agent
async def soft_errand(number: int) -> str:
    parts = []
    for place in range(PLACES):
        kind = kind_of(number, place)
        parts.append(await work_softly(number, place) if kind == "step" else _EFFECTS[kind](number, place))
    return " ".join(parts)


def _worked(number: int, place: int) -> str:
    token = _note(place)
    time.sleep(_seconds(number, place))
    return token


def _performed(kind: str, place: int) -> str:
    _note(place)
    here = perdure.current()
    return _OUTSIDE.perform(Asked(here.run_id, place, kind, here.key, here.attempt, here.epoch))


def _looked_up(intent: perdure.Intent) -> perdure.Verdict:
    here = perdure.current()
    try:
        receipt = _OUTSIDE.lookup(run=here.run_id, key=intent.key, epoch=here.epoch)
    except OSError:  # cut off from the outside: it is asked again when it can be, at the latest by a person
        return perdure.cannot_tell("the outside cannot be reached")
    return perdure.did_not_happen() if receipt is None else perdure.happened(receipt)


def _note(place: int) -> str:
    """Leave a line that this body runs, synced with nothing: the page cache outlives the process."""
    here = perdure.current()
    token = f"{place}-{os.urandom(5).hex()}"
    line = {
        "run": here.run_id,
        "place": place,
        "epoch": here.epoch,
        "attempt": here.attempt,
        "token": token,
        "at": time.time(),
    }
    descriptor = os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)
    return token


def _seconds(number: int, place: int) -> float:
    """Some steps take no time, most some, a few long."""
    chance = _chance(number, place)
    return 0.0 if chance < 0.2 else _PACE * (0.5 + 1.5 * chance)


def _chance(*numbers: int) -> float:
    return sha256(repr(numbers).encode()).digest()[0] / 256


assert ANSWER_SECONDS > DELAY_SECONDS
