"""How large a campaign is, and which faults come when, to whom: decided by one seed before anything is started."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KINDS: Final = ("kill", "freeze", "partition", "terminate", "restart", "drain")
_WEIGHTS: Final = {"kill": 0.36, "freeze": 0.16, "partition": 0.16, "terminate": 0.16, "restart": 0.08, "drain": 0.08}
_PAUSE_SECONDS: Final = (0.5, 5.5)
_LONGER_THAN_THE_LEASE: Final = (4.6, 9.0)
_SHORTER_THAN_THE_LEASE: Final = (0.5, 2.5)

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Terms:
    """How large a campaign is."""

    seed: int
    seconds: float = 600.0
    runs: int = 500
    workers: int = 4
    concurrency: int = 8
    drain_seconds: float = 300.0
    kinds: tuple[str, ...] = KINDS
    haste: float = 1.0
    delay_seconds: float = 3.0
    """The longest time the outside takes to do what it was asked."""
    portable: bool = False
    """Without what only PostgreSQL itself has: death is noticed by silence alone."""
    source: Path = ROOT / "src"


@dataclass(frozen=True)
class Fault:
    """Something that will be done to a worker or to the server."""

    at: float
    kind: str
    worker: int
    seconds: float = 0.0
    """How long it lasts, where it lasts."""
    store_only: bool = False
    """A partition that leaves the way to the outside open: the most dangerous one."""
    clean_sweep: bool = False
    """All that a worker has is met, every line of it and whoever started it, or only one part of it."""


def plan(terms: Terms, *, kinds: tuple[str, ...]) -> list[Fault]:
    """The faults of a campaign, in the order in which they come, in haste closer together; each kind at least once."""
    chance = random.Random(terms.seed)
    faults: list[Fault] = []
    at = 2.0
    owed = chance.sample(kinds, len(kinds))
    while at < terms.seconds:
        kind = owed.pop() if owed else chance.choices(kinds, [_WEIGHTS[name] for name in kinds])[0]
        lasting = _LONGER_THAN_THE_LEASE if chance.random() < 0.8 else _SHORTER_THAN_THE_LEASE
        faults.append(
            Fault(
                at=at,
                kind=kind,
                worker=chance.randrange(terms.workers),
                seconds=chance.uniform(*lasting),
                store_only=chance.random() < 0.6,
                clean_sweep=chance.random() < 0.5,
            )
        )
        at += chance.uniform(*_PAUSE_SECONDS) / terms.haste
    return faults
