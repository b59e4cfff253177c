"""Perdure on the stage: its clock, its threads, its event loops and its sessions are the simulation's."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final

from perdure import clock
from perdure.engine import agent, control, handle, session, upkeep
from perdure.engine.scope import carriers
from perdure.engine.stillness import Returning, Standing, Watch
from perdure.settings import Settings
from perdure.store import writer
from perdure.worker import intake, schedules, worker
from tests.simulation import now_playing
from tests.simulation.loop import SimulatedPolicy
from tests.simulation.threads import Queues, Threading

WALL_SECONDS: Final = 1_900_000_000.0
"""What a wall clock shows at the beginning of time."""

LOOK_SECONDS: Final = 1.0
"""Workers look less often than real ones, so that simulated hours stay short."""

_THREADED: Final = (
    "perdure.engine.active",
    "perdure.engine.drive",
    "perdure.engine.execute",
    "perdure.engine.ledger",
    "perdure.engine.news",
    "perdure.engine.runner",
    "perdure.engine.scope",
    "perdure.engine.session",
    "perdure.engine.upkeep",
    "perdure.store.writer",
    "perdure.worker.worker",
)
_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"


@contextlib.contextmanager
def on_stage() -> Iterator[None]:
    """Everything perdure does meanwhile, it does in the simulation that is played."""
    replaced: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    for name in _THREADED:
        put(importlib.import_module(name), "threading", Threading)
    put(writer, "queue", Queues)
    for name, function in vars(Time).items():
        if isinstance(function, staticmethod):
            put(clock, name, function.__func__)
    for module in (agent, control, handle):
        put(module, "session", _session)
    put(session, "open_settings", _open_settings)
    put(Watch, "farthest", _farthest)
    put(upkeep, "_tick_of", _tick_of)
    for module in (worker, schedules):
        put(module, "LOOK_SECONDS", LOOK_SECONDS)
    put(intake, "REREAD_SECONDS", 5.0)
    put(agent, "_greet", _silence)
    put(control, "install_excepthook", _silence)
    carriers.acquire()  # all simulated processes share them; who took how many is counted for each
    put(carriers, "acquire", _acquire)
    put(carriers, "release", _release)
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(SimulatedPolicy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)
        for owner, name, value in reversed(replaced):
            setattr(owner, name, value)
        carriers.release()


class Time:
    """What stands in place of the functions of `perdure.clock`."""

    @staticmethod
    def wall_seconds() -> float:
        scheduler = now_playing.scheduler()
        return WALL_SECONDS + scheduler.now + scheduler.jumped

    @staticmethod
    def boot_seconds() -> float:
        return now_playing.scheduler().now

    @staticmethod
    def elapsed_seconds() -> float:
        return now_playing.scheduler().now

    @staticmethod
    def sleep(seconds: float) -> None:
        now_playing.scheduler().wait(max(0.0, seconds))

    @staticmethod
    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=now_playing.play().chance.getrandbits(128), version=4)

    @staticmethod
    def new_fraction() -> float:
        return now_playing.play().chance.random()

    @staticmethod
    def new_token(length: int) -> str:
        chance = now_playing.play().chance
        return "".join(_ALPHABET[int(chance.random() * len(_ALPHABET))] for _ in range(length))

    @staticmethod
    def pick(choices: Any) -> str:
        return str(choices[int(now_playing.play().chance.random() * len(choices))])

    @staticmethod
    def boot_id() -> str:
        return "simulated"

    @staticmethod
    def host_name() -> str:
        return "simulated"


def _acquire() -> None:
    now_playing.process().carried += 1


def _release() -> None:
    process = now_playing.process()
    process.carried -= 1
    if process.carried < 0 and not process.is_dead:
        now_playing.play().fail(f"{process.name} released a run that it did not hold")


def _session() -> session.Session:
    return now_playing.process().session()


def _open_settings(_settings: Settings) -> Any:
    return now_playing.process().connect()


def _farthest(watch: Watch, workers: Iterable[Any]) -> Standing:
    """A thread that waits for others of its program does not work; one that sleeps, or can move, does."""
    watch.is_close = False
    for one in workers:
        if isinstance(one, asyncio.Task):
            standing = watch._task_standing(one)  # noqa: SLF001 - of a loop everything is known as it is
        else:
            thread: Any = one.thread if isinstance(one, Returning) else one
            standing = Standing.BLOCKED if thread is not None and thread.waits_for_others else Standing.WORKING
        if standing is not Standing.BLOCKED:
            return standing
    return Standing.BLOCKED


def _tick_of(settings: Settings) -> float:
    return settings.renew_seconds / 2


def _silence() -> None:
    """Nobody reads lines here."""
