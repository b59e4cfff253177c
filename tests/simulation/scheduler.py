"""Who moves, and what time it is: many strands, of which one has the baton; everything else is decided by one seed.

A strand is a thread of a simulated process. It keeps the baton until it waits for something, or until it comes by a
point where another may be chosen. Time passes only when nobody can move, or where a point says so. Nothing here sleeps.
"""

from __future__ import annotations

import contextvars
import heapq
import itertools
import math
import random
import threading
from collections.abc import Callable
from typing import Any, Final

START_SECONDS: Final = 1000.0
_MOST_DEATHS: Final = 200
"""A strand that was told so often that it is dead, and goes on, will never end."""


class Killed(BaseException):
    """The process of this strand is dead: nothing that it still does can be seen by anybody."""


class Stuck(Exception):
    """Nobody can move, and no time will change that."""


class Household:
    """What strands share that live and die together; a process is one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_frozen = False
        self.strands: list[Strand] = []
        self.iced: list[Strand] = []


class Strand:
    """A simulated thread."""

    __slots__ = (
        "baton",
        "deaths",
        "error",
        "household",
        "is_done",
        "is_ready",
        "job",
        "name",
        "number",
        "thread",
        "turn",
        "waits_for_others",
    )

    def __init__(self, number: int, name: str, household: Household, job: Callable[[], Any]) -> None:
        self.number = number
        self.name = name
        self.household = household
        self.job: Callable[[], Any] = job
        self.baton = threading.Lock()
        self.is_ready = False
        self.is_done = False
        self.error: BaseException | None = None
        self.turn = 0
        self.deaths = 0
        self.waits_for_others = False
        self.thread: object = None


class Scheduler:
    """Hands the baton on, as the seed says."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = START_SECONDS
        self.jumped = 0.0
        self.switches = 0
        self.on_crash: Callable[[Strand, BaseException], None] = _raise
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, int, Any]] = []
        self._ready: list[Strand] = []
        self._main = Strand(0, "main", Household("main"), _nothing)
        self._main.baton.acquire()
        self.current = self._main
        self._living: dict[int, Strand] = {}
        self._is_closing = False

    def begin(self, job: Callable[[], Any], *, name: str, household: Household) -> Strand:
        """Start a strand: it moves when it is chosen."""
        strand = Strand(next(self._numbers) + 1, name, household, job)
        strand.baton.acquire()
        household.strands.append(strand)
        self._living[strand.number] = strand
        _performers.perform(self, strand)
        self._make_ready(strand)
        return strand

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Do this when that time has come; it must not wait for anything."""
        heapq.heappush(self._timers, (seconds, next(self._numbers), 0, act))

    def wait(self, seconds: float = math.inf) -> bool:
        """Wait until somebody wakes this strand, for so long at most; whether it was woken."""
        me = self.current
        self._refuse_dead(me)
        me.is_ready = False
        me.turn += 1
        me.waits_for_others = seconds == math.inf
        turn = me.turn
        if seconds != math.inf:
            heapq.heappush(self._timers, (self.now + max(0.0, seconds), next(self._numbers), turn, me))
        self._hand_on(me)
        me.waits_for_others = False
        self._refuse_dead(me)
        return me.turn != turn

    def wake(self, strand: Strand) -> None:
        """Let a strand that waits move again."""
        if not strand.is_ready and not strand.is_done:
            strand.turn += 1
            self._make_ready(strand)

    def give_way(self) -> None:
        """Let another one move now, if the seed chooses one."""
        me = self.current
        if self._ready or (self._timers and self._timers[0][0] <= self.now):
            self._make_ready(me)
            self._hand_on(me)
        self._refuse_dead(me)

    def kill(self, household: Household) -> None:
        """End every strand of it, wherever it stands."""
        household.is_dead = True
        self.thaw(household)
        for strand in household.strands:
            if strand is not self.current and not strand.is_done:
                self.wake(strand)

    def freeze(self, household: Household) -> None:
        """Nothing of it moves until it is thawed."""
        household.is_frozen = True
        frozen = [strand for strand in self._ready if strand.household is household]
        self._ready = [strand for strand in self._ready if strand.household is not household]
        household.iced.extend(frozen)

    def thaw(self, household: Household) -> None:
        """Let it move again, as if no time had passed."""
        household.is_frozen = False
        self._ready.extend(household.iced)
        household.iced.clear()

    def ice(self) -> None:
        """Stand still if the household of this strand is frozen."""
        me = self.current
        if me.household.is_frozen:
            self._make_ready(me)
            self._hand_on(me)
        self._refuse_dead(me)

    def close(self) -> None:
        """Unwind everything that is left."""
        self._is_closing = True
        while self._living:
            strand = next(iter(self._living.values()))
            strand.household.is_dead = True
            strand.household.is_frozen = False
            self.current = strand
            strand.baton.release()
            self._main.baton.acquire()
        self.current = self._main

    def strand(self, number: int) -> Strand | None:
        """The strand that has this number, while it lives."""
        return self._living.get(number)

    def _make_ready(self, strand: Strand) -> None:
        strand.is_ready = True
        if strand.household.is_frozen:
            strand.household.iced.append(strand)
        else:
            self._ready.append(strand)

    def _hand_on(self, me: Strand) -> None:
        if self._is_closing:
            if me is not self._main:
                raise Killed
            return
        following = self._choose()
        if following is not me:
            self.switches += 1
            self.current = following
            following.baton.release()
            me.baton.acquire()

    def _choose(self) -> Strand:
        while True:
            timers = self._timers
            while timers and timers[0][0] <= self.now:
                _, _, turn, what = heapq.heappop(timers)
                if not isinstance(what, Strand):
                    what()
                elif what.turn == turn and not what.is_ready and not what.is_done:
                    self._make_ready(what)
            ready = self._ready
            if ready:
                return ready.pop(int(self.chance.random() * len(ready)))
            if not timers:
                raise Stuck(f"nobody can move at {self.now:.3f}")
            self.now = timers[0][0]

    def _refuse_dead(self, me: Strand) -> None:
        if me.household.is_dead:
            me.deaths += 1
            if me.deaths > _MOST_DEATHS:
                raise RuntimeError(f"{me.name} does not end although its process is dead")
            raise Killed

    def perform(self, strand: Strand) -> None:
        """What the thread of a strand does: its job, and the handing on of the baton after it."""
        strand.baton.acquire()
        try:
            if not strand.household.is_dead:
                contextvars.Context().run(strand.job)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - judged by whoever plays this simulation
            strand.error = error
            if not strand.household.is_dead:
                self.on_crash(strand, error)
        strand.is_done = True
        strand.job = _nothing
        strand.household.strands.remove(strand)
        del self._living[strand.number]
        following = self._main if self._is_closing else self._choose_after(strand)
        self.current = following
        following.baton.release()

    def _choose_after(self, strand: Strand) -> Strand:
        try:
            return self._choose()
        except Stuck as error:
            self.on_crash(strand, error)
            return self._main


class Performers:
    """Real threads, used again for one strand after the other."""

    def __init__(self) -> None:
        self._idle: list[Performer] = []

    def perform(self, scheduler: Scheduler, strand: Strand) -> None:
        performer = self._idle.pop() if self._idle else Performer(self)
        performer.begin(scheduler, strand)

    def rest(self, performer: Performer) -> None:
        self._idle.append(performer)


class Performer:
    """One real thread; it moves only while its strand has the baton."""

    def __init__(self, performers: Performers) -> None:
        self._performers = performers
        self._wanted = threading.Lock()
        self._wanted.acquire()
        self._task: tuple[Scheduler, Strand] | None = None
        threading.Thread(target=self._serve, name="simulated", daemon=True).start()

    def begin(self, scheduler: Scheduler, strand: Strand) -> None:
        self._task = (scheduler, strand)
        self._wanted.release()

    def _serve(self) -> None:
        while True:
            self._wanted.acquire()
            if self._task is None:
                raise AssertionError
            scheduler, strand = self._task
            scheduler.perform(strand)
            self._task = None
            self._performers.rest(self)


_performers: Final = Performers()


def _nothing() -> None:
    """A strand that is over has nothing to do."""


def _raise(_strand: Strand, error: BaseException) -> None:
    raise error
