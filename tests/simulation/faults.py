"""What may go wrong at a point, how often in this simulation, and what did."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Fate(StrEnum):
    """What becomes of somebody who comes by a point."""

    KILL_BEFORE = "killed before it"
    KILL_AFTER = "killed after it"
    KILL_LATE = "killed, and it landed later"
    FAIL = "failed"
    LOSE = "landed, its answer was lost"
    TWICE = "its answer was lost, and it was asked again"
    FREEZE_BEFORE = "frozen before it"
    FREEZE_AFTER = "frozen after it"
    SLOW = "took long"
    JUMP = "the wall clock jumped"


KILLS: Final = frozenset({Fate.KILL_BEFORE, Fate.KILL_AFTER, Fate.KILL_LATE})
FREEZES: Final = frozenset({Fate.FREEZE_BEFORE, Fate.FREEZE_AFTER})
_WRITES: Final = frozenset({"append_all", "claim_run", "create_run", "post"})
_REPEATED: Final = frozenset({"claim_run", "create_run"})
"""Verbs that a store on a server asks again by itself on a new line, when the old one broke."""

_WEIGHTS: Final = {
    "append_all": 1.0,
    "claim_run": 1.0,
    "create_run": 1.0,
    "post": 1.0,
    "body begins": 0.7,
    "body sends": 1.5,
    "body has its answer": 1.5,
    "body ends": 0.7,
    "check asks": 1.5,
    "holds": 1.0,
    "load_journal": 0.7,
    "beat": 0.3,
    "read_mail": 0.1,
}
_OTHERS: Final = 0.02
_RECOVERING: Final = 3.0
"""How much more often something happens to whoever has only just taken over what another left."""


@dataclass(frozen=True)
class Temper:
    """How hard the world is in one simulation."""

    kill: float
    fail: float
    freeze: float
    slow: float
    jump: float
    switch: float
    """How often another strand is let in at a point."""
    budget: int
    seconds: float
    """For how long anything goes wrong; after that everything must come to its end."""

    @property
    def total(self) -> float:
        return self.kill + self.fail + self.freeze + self.slow + self.jump


def drawn_temper(chance: random.Random) -> Temper:
    """A world in which some things go wrong often, others never."""
    scale = chance.choice((0.02, 0.05, 0.1, 0.2))

    def share() -> float:
        return chance.choice((0.0, 1.0, 1.0, 3.0))

    kill, fail, freeze, slow, jump = share(), share(), share(), share(), 0.3 * share()
    total = max(1.0, kill + fail + freeze + slow + jump)
    return Temper(
        kill=scale * (kill or 0.3) / total,
        fail=scale * fail / total,
        freeze=scale * freeze / total,
        slow=scale * slow / total,
        jump=scale * jump / total,
        switch=chance.choice((0.05, 0.2, 0.5)),
        budget=chance.choice((4, 8, 12, 20)),
        seconds=chance.choice((20.0, 40.0, 60.0)),
    )


class Faults:
    """Draws a fate at every point, and counts what landed."""

    def __init__(self, chance: random.Random, temper: Temper, *, begun: float) -> None:
        self.landed: Counter[Fate] = Counter()
        self.temper = temper
        self._chance = chance
        self._until = begun + temper.seconds
        self._left = temper.budget

    def is_over(self, now: float) -> bool:
        """Whether nothing goes wrong any more."""
        return self._left <= 0 or now >= self._until

    def fate(self, point: str, now: float, *, recovering: bool) -> Fate | None:
        """What happens to whoever is at this point; mostly nothing."""
        if self._left <= 0 or now >= self._until:
            return None
        weight = _WEIGHTS.get(point, _OTHERS) * (_RECOVERING if recovering else 1.0)
        draw = self._chance.random()
        if draw >= weight * self.temper.total:
            return None
        fate = self._picked(point, draw / weight)
        if fate is not None:
            self._left -= 1
            self.landed[fate] += 1
        return fate

    def _picked(self, point: str, draw: float) -> Fate | None:
        temper, half = self.temper, self._chance.random()
        if draw < temper.kill:
            if point in _WRITES and half < 0.3:
                return Fate.KILL_LATE
            return Fate.KILL_BEFORE if half < 0.6 else Fate.KILL_AFTER
        draw -= temper.kill
        if draw < temper.fail:
            if point not in _WEIGHTS or point.startswith(("body", "check")):
                return None
            if point in _REPEATED and half < 0.25:
                return Fate.TWICE
            return Fate.FAIL if half < 0.6 else Fate.LOSE
        draw -= temper.fail
        if draw < temper.freeze:
            return Fate.FREEZE_BEFORE if half < 0.5 else Fate.FREEZE_AFTER
        return Fate.SLOW if draw - temper.freeze < temper.slow else Fate.JUMP
