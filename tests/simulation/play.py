"""One simulation from its seed to its end: the fleet, what happens to it, and whether every promise was kept."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.settings import Settings
from perdure.store.protocol import Store
from tests.simulation import judge, now_playing, people
from tests.simulation.faults import FREEZES, KILLS, Fate, Faults, drawn_temper
from tests.simulation.outside import Outside
from tests.simulation.plan import Op, RunPlan, drawn_plan
from tests.simulation.process import Process
from tests.simulation.scheduler import Killed, Scheduler, Strand
from tests.simulation.truth import InMemory, Truth
from tests.simulation.witness import Witness

LONGEST_SECONDS: Final = 200.0
"""So long after the last fault everything that was accepted must have come to its end."""

SETTINGS: Final = Settings(
    store="memory:",
    renew_seconds=2.0,
    lease_seconds=8.0,
    stall_seconds=8.0,
    cancel_grace_seconds=3.0,
    deliveries=3,
    quiet=True,
)

Line = tuple[float, str, str, str, str]
"""When, who, at which point, about what, and what happened there."""


@dataclass(frozen=True)
class Ending:
    """How a simulation ended."""

    seed: int
    fault: str
    """What was broken; empty where every promise was kept."""
    seconds: float
    """How long it took by its own clock."""
    counts: Counter[str] = field(default_factory=Counter)
    trace: tuple[Line, ...] = ()


class Play:
    """A simulation that is being played."""

    def __init__(self, seed: int, open_truth: Callable[[], Truth] = InMemory) -> None:
        self.seed = seed
        self.truth: Truth
        self.chance = random.Random(seed)
        self.plan = drawn_plan(self.chance)
        self.scheduler = Scheduler(random.Random(self.chance.getrandbits(64)))
        self.scheduler.on_crash = self._crashed
        self.faults = Faults(
            random.Random(self.chance.getrandbits(64)), drawn_temper(self.chance), begun=self.scheduler.now
        )
        self.settings = SETTINGS
        self._open_truth = open_truth
        self.witness = Witness(self)
        self.outside = Outside(self)
        self.workers: dict[str, Process] = {}
        self.processes: list[Process] = []
        self.accepted: set[int] = set()
        self.trace: list[Line] = []
        self.fault = ""
        self.counts: Counter[str] = Counter()
        self._farthest = 0.0
        self._tokens: Counter[str] = Counter()
        self._poisoned: Counter[str] = Counter()
        self._generations: Counter[str] = Counter()

    def perform(self) -> Ending:
        """Play it to its end."""
        now_playing.enter(self)
        self.truth = self._open_truth()
        try:
            people.enter(self)
            self._watch()
            if not self.fault:
                judge.judge(self)
        finally:
            self.scheduler.close()
            self.truth.close()
            now_playing.leave()
        self._count()
        seconds = self.scheduler.now
        return Ending(self.seed, self.fault, seconds, self.counts + self.witness.counts, tuple(self.trace))

    def begin(self, name: str, role: Callable[[Process], None], *, is_mortal: bool = True) -> Process:
        """Start a process, or, under a name that was there before, another in its place."""
        self._generations[name] += 1
        number = self._generations[name]
        process = Process(self, name if number == 1 else f"{name}'{number}", role, is_mortal=is_mortal)
        self.processes.append(process)
        process.begin()
        return process

    def kill(self, process: Process) -> None:
        """End a process; where it has a role, another takes it after a while."""
        self.scheduler.kill(process)
        self._bury(process)
        if not process.is_mortal:
            raise AssertionError(process.name)
        name = process.name.partition("'")[0]
        after = self.scheduler.now + self.chance.uniform(0.1, 3.0)
        self.scheduler.at(after, lambda: self._replace(name, process))

    def freeze(self, process: Process) -> None:
        """Let nothing of a process move for a while, often for longer than its lease."""
        self.scheduler.freeze(process)
        seconds = self.chance.choice((0.5, 1.2, 2.0)) * self.settings.stall_seconds
        self.scheduler.at(self.scheduler.now + seconds, lambda: self._thaw(process))

    def follow(self, process: Process) -> None:
        """A process ends as it should; another takes its role."""
        self.counts["drained"] += 1
        name = process.name.partition("'")[0]
        self.scheduler.at(self.scheduler.now + 1.0, lambda: self._replace(name, process))

    def leave(self, process: Process) -> None:
        """A process has done what it was started for, and ends."""
        process.has_left = True
        if process.line is not None:
            process.session().close()

    def jump(self) -> None:
        """The wall clock is set, forward or back."""
        self.scheduler.jumped += self.chance.choice((-3600.0, -5.0, 5.0, 3600.0))
        self._farthest = max(self._farthest, self.scheduler.jumped)

    def landed_late(self, act: Callable[[], Any]) -> None:
        """What a dead process had sent arrives."""
        try:
            act()
        except Exception:  # noqa: BLE001 - nobody is there any more to hear of it
            return

    def spread(self, run_id: str) -> None:
        """There are news of a run; who hears of them is a matter of luck."""
        if self.plan.is_distant and not self.fault:
            for process in self.processes:
                if process.line is not None and not process.is_dead and self.chance.random() >= self.plan.dropped:
                    process.line.tell(run_id)

    def world_store(self) -> Store:
        """A store for a new process."""
        return self.truth.open()

    def poison(self, op: Op) -> None:
        """End the process that executes this step, as often as planned."""
        process = now_playing.process()
        if self._poisoned[op.place] < op.kills and process.is_mortal:
            self._poisoned[op.place] += 1
            self.counts["poisoned"] += 1
            self.note("poison", op.place, Fate.KILL_BEFORE)
            self.kill(process)
            raise Killed

    def run_id_of(self, plan: RunPlan) -> str:
        """The id of a planned run; a child has one once it was created."""
        return plan.run_id if not plan.is_child else self.witness.numbered.get(plan.number, "")

    def token(self, place: str) -> str:
        """Something no other execution of a body returns."""
        self._tokens[place] += 1
        return f"{place}-{self._tokens[place]}"

    def note(self, point: str, about: str, fate: Fate | None) -> None:
        """One line of the trace."""
        scheduler = self.scheduler
        if self.fault:
            return
        self.trace.append((scheduler.now, scheduler.current.name, point, about, "" if fate is None else fate.value))

    def fail(self, what: str) -> None:
        """Something was broken: this is what the seed stands for."""
        if not self.fault:
            self.fault = what
            self.trace.append((self.scheduler.now, self.scheduler.current.name, "FAULT", what, ""))

    def _watch(self) -> None:
        """Let everything happen until all is over, or something is broken, or time is up."""
        calm_since = 0.0
        while not self.fault and not judge.is_over(self):
            if self.faults.is_over(self.scheduler.now) and not calm_since:
                calm_since = self.scheduler.now
                self.scheduler.jumped = self._farthest  # whatever was to come by any clock comes
            if calm_since and self.scheduler.now > calm_since + LONGEST_SECONDS:
                self.fail(f"P7: not over {LONGEST_SECONDS:g} s after the last fault: {judge.unfinished(self)}")
            self.scheduler.wait(1.0)

    def _replace(self, name: str, process: Process) -> None:
        self.begin(name, process.role)

    def _bury(self, process: Process) -> None:
        """Some deaths are seen at once, some are told by whoever waited for the process, some only show in time."""
        line, draw = process.line, self.chance.random()
        if line is None or not process.worker_id:
            return
        if draw < 0.6 and not self.plan.is_distant:
            self.truth.bury(line.store, process.worker_id)
        elif draw < 0.8:
            line.store.record_death(process.worker_id, "killed")

    def _thaw(self, process: Process) -> None:
        if process.is_frozen:
            process.trouble_at = self.scheduler.now
            self.counts["thaws"] += 1
            self.scheduler.thaw(process)

    def _crashed(self, strand: Strand, error: BaseException) -> None:
        self.fail(f"{strand.name} ended by {type(error).__name__}: {error}")

    def _count(self) -> None:
        landed = self.faults.landed
        self.counts["kills"] += sum(landed[fate] for fate in KILLS) + self.counts["poisoned"]
        self.counts["freezes"] += sum(landed[fate] for fate in FREEZES)
        self.counts["lost answers"] += landed[Fate.LOSE]
        self.counts["failed verbs"] += landed[Fate.FAIL]
        self.counts["asked twice"] += landed[Fate.TWICE]
        self.counts["landed late"] += landed[Fate.KILL_LATE]
        self.counts["slow"] += landed[Fate.SLOW]
        self.counts["clock jumps"] += landed[Fate.JUMP]
        self.counts["points"] += len(self.trace)
        self.counts["switches"] += self.scheduler.switches
