"""The agents of a simulation: they do what their plan says, and their bodies leave traces that the witness sees."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import perdure
from perdure import clock
from perdure.engine.scope import current_frame
from tests.simulation import now_playing
from tests.simulation.outside import IN_FLIGHT_SECONDS, Refused
from tests.simulation.plan import Op, RunPlan
from tests.simulation.threads import Thread
from tests.simulation.witness import asked

SIGNAL: Final = "go"
FAILED: Final = "failed"
"""What a parent makes of a child that failed."""

ATTEMPTS: Final = perdure.Retry(attempts=3, delay_seconds=0.2)


class Regret(Exception):
    """What an agent fails with whose effects are to be taken back."""


@perdure.agent
def errand(number: int, begin: int = 0) -> str:
    values = [_perform(number, op) for op in _plan(number).part(begin)]
    return _concluded(number, begin, values)


@perdure.agent
async def soft_errand(number: int, begin: int = 0) -> str:
    values = [await _perform_softly(number, op) for op in _plan(number).part(begin)]
    return _concluded(number, begin, values)


@perdure.agent(undo_on_failure=True)
def rueful_errand(number: int, begin: int = 0) -> str:
    values = [_perform(number, op) for op in _plan(number).part(begin)]
    return _concluded(number, begin, values)


AGENTS: Final[tuple[Any, ...]] = (errand, soft_errand, rueful_errand)


@perdure.step(retry=ATTEMPTS)
def work(number: int, place: str) -> str:
    return _worked(number, place)


@perdure.step(retry=ATTEMPTS)
async def work_softly(number: int, place: str) -> str:
    op = _begun(number, place)
    if op.seconds:
        await asyncio.sleep(op.seconds)
    return _token(op)


@perdure.step
def poison(number: int, place: str) -> str:
    """A step that ends its worker, so many times."""
    op = _begun(number, place)
    now_playing.play().poison(op)
    return _token(op)


@perdure.effect(keyed=True, retry=ATTEMPTS, certain=(Refused,))
def pay(number: int, place: str) -> str:
    return _performed(number, place, keyed=True)


@perdure.effect(retry=ATTEMPTS, certain=(Refused,), in_flight_seconds=IN_FLIGHT_SECONDS)
def post(number: int, place: str) -> str:
    return _performed(number, place)


@post.check
def was_posted(intent: perdure.Intent) -> perdure.Verdict:
    receipt = now_playing.play().outside.lookup(intent)
    return perdure.happened(receipt) if receipt else perdure.did_not_happen()


@perdure.effect(certain=(Refused,), in_flight_seconds=IN_FLIGHT_SECONDS)
def take_back(receipt: str, number: int, place: str) -> str:
    return now_playing.play().outside.perform(f"undo {place}", keyed=False, refuses=0)


@take_back.check
def was_taken_back(intent: perdure.Intent) -> perdure.Verdict:
    return was_posted(intent)


@perdure.effect(retry=ATTEMPTS, certain=(Refused,), in_flight_seconds=IN_FLIGHT_SECONDS, undo=take_back)
def book(number: int, place: str) -> str:
    return _performed(number, place)


@book.check
def was_booked(intent: perdure.Intent) -> perdure.Verdict:
    return was_posted(intent)


@perdure.effect(retry=ATTEMPTS, certain=(Refused,))
def tell(number: int, place: str) -> str:
    return _performed(number, place)


_EFFECTS: Final[dict[str, Any]] = {"keyed": pay, "checked": post, "plain": tell, "booked": book}


def agent_of(plan: RunPlan) -> Any:
    """The agent that does what this plan says."""
    if plan.is_rueful:
        return rueful_errand
    return soft_errand if plan.is_async else errand


def _concluded(number: int, begin: int, values: list[str]) -> str:
    """How an agent ends: it goes on as another, fails, or returns what it has."""
    plan = _plan(number)
    if plan.restarts_at and not begin:
        perdure.restart_with(number, plan.restarts_at)
    if plan.fails:
        raise Regret(plan.run_id)
    return " ".join(values)


def _perform(number: int, op: Op) -> str:
    match op.kind:
        case "step":
            return work(number, op.place)
        case "poison":
            return poison(number, op.place)
        case "effect":
            return str(_EFFECTS[op.effect](number, op.place))
        case "sleep":
            perdure.sleep(op.seconds)
            return "slept"
        case "ask":
            return perdure.ask(asked(op), options=[choice for _, choice in op.deciders]).choice
        case "signal":
            return str(perdure.wait_for(SIGNAL))
        case "child":
            return _child_result(op)
        case "branches":
            return _branched(number, op)
        case "now":
            return f"{perdure.now().timestamp():.3f}"


async def _perform_softly(number: int, op: Op) -> str:
    match op.kind:
        case "step":
            return await work_softly(number, op.place)
        case "sleep":
            await perdure.sleep(op.seconds)
            return "slept"
        case "ask":
            return (await perdure.ask(asked(op), options=[choice for _, choice in op.deciders])).choice
        case "signal":
            return str(await perdure.wait_for(SIGNAL))
        case "child":
            try:
                return str(await _start(op))
            except Exception:  # noqa: BLE001 - as above
                return FAILED
        case "branches":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_branch_softly(number, branch)) for branch in op.branches]
            return " ".join(task.result() for task in tasks)
        case _:
            return _perform(number, op)


def _child_result(op: Op) -> str:
    try:
        return str(_start(op).result())
    except Exception:  # noqa: BLE001 - of whichever class its failure comes back
        return FAILED


def _start(op: Op) -> Any:
    child = _plan(op.child)
    return perdure.start(agent_of(child), child.number, queue=child.queue if op.is_queued else None)


def _branched(number: int, op: Op) -> str:
    """The branches in threads of their own; one that fails or is stopped leaves its place empty."""
    values = [""] * len(op.branches)

    def walk(place: int, branch: tuple[Op, ...]) -> None:
        values[place] = " ".join([_perform(number, inner) for inner in branch])

    threads = [Thread(target=walk, args=(place, branch)) for place, branch in enumerate(op.branches)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return " ".join(values)


async def _branch_softly(number: int, branch: tuple[Op, ...]) -> str:
    return " ".join([await _perform_softly(number, op) for op in branch])


def _plan(number: int) -> RunPlan:
    return now_playing.play().plan.runs[number]


def _begun(number: int, place: str) -> Op:
    """A body begins: it comes by a point, and may fail as planned."""
    play, frame = now_playing.play(), current_frame()
    if frame is None or frame.active is None:
        raise TypeError(frame)
    row = frame.active.row
    play.witness.begins(row.run_id, frame.step_key, row.epoch)
    op = next(op for op in _plan(number).all_ops() if op.place == place)
    now_playing.process().through("body begins", lambda: None, about=place)
    if op.kind == "step" and frame.attempt <= op.fails:
        raise ValueError(f"attempt {frame.attempt} of {place} fails")
    return op


def _worked(number: int, place: str) -> str:
    op = _begun(number, place)
    if op.seconds:
        clock.sleep(op.seconds)
    return _token(op)


def _token(op: Op) -> str:
    return now_playing.process().through("body ends", lambda: now_playing.play().token(op.place), about=op.place)


def _performed(number: int, place: str, *, keyed: bool = False) -> str:
    op = next(op for op in _plan(number).all_ops() if op.place == place)
    if op.seconds:
        clock.sleep(op.seconds)
    return now_playing.play().outside.perform(place, keyed=keyed, refuses=op.fails)
