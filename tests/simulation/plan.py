"""What is to be done in a simulation, drawn from the seed: runs with their calls, workers, queues, people."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, Literal

OpKind = Literal["step", "effect", "sleep", "ask", "signal", "child", "branches", "poison", "now"]
EffectKind = Literal["keyed", "checked", "plain", "booked"]
"""One that is booked can be taken back; the others stay."""

Launch = Literal["queued", "script"]

_WEIGHTS: Final[dict[OpKind, int]] = {
    "step": 6,
    "effect": 7,
    "sleep": 2,
    "ask": 2,
    "signal": 1,
    "child": 1,
    "branches": 1,
    "poison": 1,
    "now": 1,
}


@dataclass(frozen=True)
class Op:
    """One call of an agent."""

    kind: OpKind
    place: str
    seconds: float = 0.0
    """How long its body takes, or how long it sleeps."""
    effect: EffectKind = "plain"
    fails: int = 0
    """So many attempts of a step fail; so many of an effect are refused by the outside."""
    kills: int = 0
    """So many times it ends the process that executes it."""
    child: int = 0
    is_queued: bool = False
    branches: tuple[tuple[Op, ...], ...] = ()
    deciders: tuple[tuple[float, str], ...] = ()
    """Who answers or signals: after how many seconds, and what they say."""


@dataclass(frozen=True)
class RunPlan:
    """One run."""

    number: int
    ops: tuple[Op, ...]
    launch: Launch = "queued"
    queue: str = "default"
    priority: int = 0
    starts_after: float = 0.0
    cancel_after: float = 0.0
    """When somebody asks it to end; 0 where nobody does."""
    pause_after: float = 0.0
    """When somebody pauses it, for a while; 0 where nobody does."""
    is_child: bool = False
    is_async: bool = False
    fails: bool = False
    """Whether it raises in the end; one that is no child takes back what can be."""
    restarts_at: int = 0
    """After so many calls it goes on as another run; 0 where it does not."""

    @property
    def run_id(self) -> str:
        return f"run-{self.number}"

    @property
    def is_soft(self) -> bool:
        """Whether its agent is async; the one that takes things back is not."""
        return self.is_async and not self.is_rueful

    @property
    def is_rueful(self) -> bool:
        return self.fails and not self.is_child

    def part(self, begin: int) -> tuple[Op, ...]:
        """The calls of the run that begins there: up to where it goes on as another, or from there on."""
        return self.ops[begin:] if begin or not self.restarts_at else self.ops[: self.restarts_at]

    def all_ops(self) -> list[Op]:
        """Its calls, those of its branches too."""
        return [each for op in self.ops for each in (op, *(inner for branch in op.branches for inner in branch))]


@dataclass(frozen=True)
class Plan:
    """One simulation."""

    runs: tuple[RunPlan, ...]
    workers: int
    slots: int
    """How many runs a worker executes at once."""
    is_distant: bool
    """Whether workers cannot see each other die, and go by their leases."""
    mute: float
    """How often the outside does what it is asked, and never answers."""
    dropped: float
    """How often nobody is told of news."""
    drain_after: float
    """When somebody asks a worker to finish what it has; another follows it. 0 where nobody does."""
    concurrency: dict[str, int] = field(default_factory=dict)
    rate: dict[str, float] = field(default_factory=dict)


def drawn_plan(chance: random.Random) -> Plan:
    """Something to do."""
    drawing = _Drawing(chance)
    for _ in range(chance.choice((1, 2, 2, 3, 4))):
        drawing.draw_run()
    return Plan(
        runs=tuple(drawing.runs),
        workers=chance.choice((1, 2, 2, 3)),
        slots=chance.choice((1, 2, 4)),
        is_distant=chance.random() < 0.5,
        mute=chance.choice((0.0, 0.1, 0.4)),
        dropped=chance.choice((0.0, 0.5, 1.0)),
        drain_after=chance.choice((0.0, 0.0, 1.5, 6.0)),
        concurrency={"narrow": chance.choice((1, 2))},
        rate={"slow": chance.choice((0.5, 2.0))},
    )


class _Drawing:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.runs: list[RunPlan] = []

    def draw_run(self, *, is_child: bool = False) -> int:
        chance, number = self._chance, len(self.runs)
        self.runs.append(RunPlan(number, ()))  # its place, before those of its children
        count = chance.randint(1, 3) if is_child else chance.randint(2, 6)
        ops = tuple(self._draw_op(str(place), depth=1 if is_child else 0) for place in range(count))
        is_script = not is_child and chance.random() < 0.2
        fails = chance.random() < 0.12
        is_parent = any(op.kind == "child" for op in ops)
        self.runs[number] = RunPlan(
            number,
            ops,
            launch="script" if is_script else "queued",
            queue=chance.choice(("default", "default", "narrow", "slow")),
            priority=chance.choice((0, 0, 1)),
            starts_after=chance.choice((0.0, 0.0, 1.0, 5.0)),
            cancel_after=chance.uniform(0.5, 15.0) if not is_child and chance.random() < 0.12 else 0.0,
            pause_after=chance.uniform(0.5, 8.0) if not is_child and chance.random() < 0.1 else 0.0,
            is_child=is_child,
            is_async=chance.random() < 0.25,
            fails=fails and not is_parent,
            restarts_at=chance.randint(1, count - 1) if not is_child and count > 1 and chance.random() < 0.12 else 0,
        )
        return number

    def _draw_op(self, place: str, *, depth: int) -> Op:
        chance = self._chance
        kind = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if depth and kind in ("child", "branches"):
            kind = "effect"
        match kind:
            case "step":
                return Op(kind, place, seconds=self._seconds(), fails=chance.choice((0, 0, 0, 1, 2)))
            case "effect":
                effect: EffectKind = chance.choice(("keyed", "checked", "plain", "booked"))
                fails = chance.choice((0, 0, 0, 0, 1))
                return Op(kind, place, effect=effect, fails=fails, seconds=chance.choice((0.0, 0.0, 0.5)))
            case "sleep":
                return Op(kind, place, seconds=chance.choice((0.5, 3.0, 12.0)))
            case "ask" | "signal":
                count = chance.choice((1, 2, 3))
                deciders = tuple((chance.uniform(0.0, 12.0), f"{place}.{each}") for each in range(count))
                return Op(kind, place, deciders=deciders if kind == "ask" else deciders[:1])
            case "child":
                return Op(kind, place, child=self.draw_run(is_child=True), is_queued=chance.random() < 0.5)
            case "branches":
                return Op(kind, place, branches=self._draw_branches(place))
            case "poison":
                return Op(kind, place, kills=chance.choice((1, 2, 3, 4)))
        return Op(kind, place)

    def _draw_branches(self, place: str) -> tuple[tuple[Op, ...], ...]:
        return tuple(
            tuple(
                self._draw_op(f"{place}.{branch}.{number}", depth=2) for number in range(self._chance.choice((1, 1, 2)))
            )
            for branch in range(self._chance.choice((2, 3)))
        )

    def _seconds(self) -> float:
        """Most steps are short; a few take longer than a lease."""
        return self._chance.choice((0.0, 0.0, 0.1, 1.0, 4.0, 12.0))
