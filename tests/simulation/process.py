"""A simulated process: its strands, its session, and everything that can happen to it at a point."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from perdure.engine.session import Session
from perdure.errors import StoreUnavailable
from tests.simulation.faults import FREEZES, KILLS, Fate
from tests.simulation.line import Line
from tests.simulation.scheduler import Household, Killed

if TYPE_CHECKING:
    from tests.simulation.play import Play

T = TypeVar("T")
TICK_SECONDS: Final = 0.0005
"""How long a point takes where nothing happens there."""


def _raise(error: StoreUnavailable) -> NoReturn:
    raise error


class Process(Household):
    """One process of the fleet: a worker, a script, somebody at a command line."""

    def __init__(self, play: Play, name: str, role: Callable[[Process], None], *, is_mortal: bool = True) -> None:
        super().__init__(name)
        self.play = play
        self.role = role
        self.is_mortal = is_mortal
        self.has_left = False
        self.carried = 0
        """For how many runs it has threads carry their frame along."""
        self.worker_id = ""
        self.trouble_at = 0.0
        """When it was last kept from giving signs of life, by anything but itself."""
        self.recovers = False
        """Whether it has just taken over what another left, and completed nothing since."""
        self.line: Line | None = None
        self._session: Session | None = None

    def begin(self) -> None:
        """Start its first strand."""
        self.play.scheduler.begin(self._live, name=self.name, household=self)

    def _live(self) -> None:
        self.role(self)
        self.play.leave(self)

    def session(self) -> Session:
        """What it shares between its runs, opened when first asked for."""
        if self._session is None:
            self._session = Session(self.play.settings)
        return self._session

    def connect(self) -> Line:
        """A line to the store."""
        self.line = Line(self.play.world_store(), self)
        return self.line

    def through(
        self, point: str, act: Callable[[], T], *, about: str = "", lost: Callable[[StoreUnavailable], T] = _raise
    ) -> T:
        """Do this at a point of its life, or have something happen to it instead."""
        play, scheduler = self.play, self.play.scheduler
        if self.is_dead:
            raise Killed
        scheduler.now += TICK_SECONDS
        temper = play.faults.temper
        if temper.switch > play.chance.random():
            scheduler.give_way()
        fate = play.faults.fate(point, scheduler.now, recovering=self.recovers) if self.is_mortal else None
        play.note(point, about, fate)
        if fate is None:
            return act()
        return self._suffer(fate, act, lost)

    def _suffer(self, fate: Fate, act: Callable[[], T], lost: Callable[[StoreUnavailable], T]) -> T:
        play, scheduler = self.play, self.play.scheduler
        if fate is Fate.JUMP:
            play.jump()
            return act()
        if fate is Fate.SLOW:
            self.trouble_at = scheduler.now
            scheduler.wait(play.chance.uniform(0.1, 1.5) * play.settings.renew_seconds)
            self.trouble_at = scheduler.now
            return act()
        if fate in FREEZES:
            return self._freeze(fate, act)
        if fate in KILLS:
            return self._die(fate, act)
        if fate is Fate.TWICE:
            act()
            return act()
        self.trouble_at = scheduler.now
        if fate is Fate.LOSE:
            act()
        return lost(StoreUnavailable("The store is away.", safe="nothing is lost.", hint="try again"))

    def _freeze(self, fate: Fate, act: Callable[[], T]) -> T:
        play, scheduler = self.play, self.play.scheduler
        if fate is Fate.FREEZE_BEFORE:
            play.freeze(self)
            scheduler.ice()
            return act()
        result = act()
        play.freeze(self)
        scheduler.ice()
        return result

    def _die(self, fate: Fate, act: Callable[[], Any]) -> NoReturn:
        play, scheduler = self.play, self.play.scheduler
        if fate is Fate.KILL_AFTER:
            act()
        if fate is Fate.KILL_LATE:
            scheduler.at(scheduler.now + play.chance.uniform(0.01, 3.0), lambda: play.landed_late(act))
        play.kill(self)
        raise Killed
