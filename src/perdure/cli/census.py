"""All runs of a store at one moment: found, counted, and put in the order in which somebody should look at them.

A row may say `running` when its process is dead. Here such a run counts as queued, as its status says. A damaged row
hides no other run: then everything is read, the whole rows are told and the damage is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from perdure.cli.damage import Damage, damage_of
from perdure.cli.runs import every_run
from perdure.errors import CheckpointCorrupt
from perdure.records import RunState, WaitReason
from perdure.replay import Journal
from perdure.settings import current_settings
from perdure.status import needs_person
from perdure.store.protocol import EVERY, Which

if TYPE_CHECKING:
    from perdure.records import Run
    from perdure.store.protocol import Store

_BY_A_PERSON: Final = (WaitReason.IN_DOUBT, WaitReason.HUMAN, WaitReason.PARKED)
_BY_ITSELF: Final = (WaitReason.SIGNAL, WaitReason.CHILD, WaitReason.TIME)
_LOOKED_AT: Final = 200
"""Of so many runs with a dead process the journals are read, to tell which of them need a person."""

_MOVED: Final = Which(states=(RunState.WAITING,), reasons=(WaitReason.PARKED,), moved=True)
_HELD_OR_NOT: Final = frozenset({RunState.QUEUED, RunState.RUNNING})


class Tally(Struct, frozen=True):
    """How many runs stand where."""

    states: dict[str, int]
    """By state; a run whose process is dead is queued."""
    reasons: dict[str, int]
    """The waiting ones, by reason."""
    moved: int = 0
    """How many went to another store before they ended; they are in no other count."""

    @property
    def everything(self) -> int:
        """How many rows there are."""
        return sum(self.states.values()) + self.moved

    @property
    def unfinished(self) -> int:
        """How many may still move."""
        done = self.states[RunState.COMPLETED] + self.states[RunState.CANCELLED]
        return sum(self.states.values()) - done


class Census:
    """The runs of a store, as they are when this is made."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stall_seconds = current_settings().stall_seconds
        self._alive: dict[str, bool] = {}
        self._held: list[Run] | None = None
        self._whole: list[Run] | None = None
        self._moved: int | None = None
        self._counts: dict[tuple[str, str], int] = {}
        self.damaged: list[Damage] = []

    def find(self, which: Which, *, limit: int = EVERY, skip: int = 0) -> list[Run]:
        """The runs that are meant, newest first."""
        if _asks_for_life(which):
            return self._by_life(which)[skip : skip + limit]
        return self._rows(which, limit=limit, skip=skip)

    def count(self, which: Which) -> int:
        """How many runs are meant."""
        return len(self._by_life(which)) if _asks_for_life(which) else self._count(which)

    def tally(self) -> Tally:
        """How many runs stand where."""
        held = self._of_processes()
        alive = sum(map(self._is_alive, held))
        states = {str(state): self._count_in(state) for state in RunState}
        states[RunState.QUEUED] += len(held) - alive
        states[RunState.RUNNING] = alive
        reasons = {str(reason): self._count_in(RunState.WAITING, reason) for reason in WaitReason}
        moved = self._count_moved()
        states[RunState.WAITING] -= moved
        reasons[WaitReason.PARKED] -= moved
        return Tally(states, reasons, moved)

    def in_order_of_need(self, *, finished: bool, limit: int, skip: int) -> list[Run]:
        """What needs a person first, then what stopped, what failed, what moves, what waits by itself, what is over."""
        found: list[Run] = []
        for shelf in self._shelves(finished=finished):
            whole = len(shelf) if isinstance(shelf, list) else self._count_on(shelf)
            wanted = limit - len(found)
            if wanted > 0 and skip < whole:
                more = shelf[skip:] if isinstance(shelf, list) else self._rows(shelf, limit=wanted, skip=skip)
                found += more[:wanted]
            skip = max(0, skip - whole)
        return found

    def _shelves(self, *, finished: bool) -> list[Which | list[Run]]:
        held = self._of_processes()
        dead = [run for run in held if not self._is_alive(run)]
        needy = [run for run in dead[:_LOOKED_AT] if self._needs_person(run)]
        shelves: list[Which | list[Run]] = [
            Which(states=(RunState.WAITING,), reasons=_BY_A_PERSON, moved=False),
            needy,
            [run for run in dead if run not in needy],
            Which(states=(RunState.QUEUED,)),
            Which(states=(RunState.FAILED,)),
            [run for run in held if self._is_alive(run)],
            Which(states=(RunState.WAITING,), reasons=_BY_ITSELF),
        ]
        over = [_MOVED, Which(states=(RunState.COMPLETED, RunState.CANCELLED))]
        return [*shelves, *over] if finished else shelves

    def _needs_person(self, run: Run) -> bool:
        """Whether a resume of this run, whose process is dead, will come to a question or to an effect in doubt."""
        try:
            journal = Journal(self._store.load_journal(run.run_id), suspects=run.suspects)
        except CheckpointCorrupt:
            return True
        return any(needs_person(self._store, run, journal))

    def _of_processes(self) -> list[Run]:
        """The runs whose row says that a process holds them."""
        if self._held is None:
            self._held = self._rows(Which(states=(RunState.RUNNING,)))
        return self._held

    def _by_life(self, which: Which) -> list[Run]:
        """Narrowed to queued or to running runs, which only a look at their processes can tell apart."""
        wider = msgspec.structs.replace(which, states=tuple({*which.states, *_HELD_OR_NOT}))
        return [run for run in self._rows(wider) if self._state_of(run) in which.states]

    def _state_of(self, run: Run) -> str:
        return RunState.QUEUED if run.state == RunState.RUNNING and not self._is_alive(run) else run.state

    def _is_alive(self, run: Run) -> bool:
        """Whether its process lives; one process may hold many runs and is looked at once."""
        if run.holder not in self._alive:
            self._alive[run.holder] = self._store.is_running(run, stall_seconds=self._stall_seconds)
        return self._alive[run.holder]

    def _count_on(self, shelf: Which) -> int:
        if shelf is _MOVED:
            return self._count_moved()
        rows = sum(self._count_in(state, reason) for state in shelf.states for reason in shelf.reasons or ("",))
        return rows - (self._count_moved() if shelf.moved is False else 0)

    def _count_moved(self) -> int:
        """How many of the parked runs went to another store; few stores have any."""
        if self._moved is None:
            parked = self._count_in(RunState.WAITING, WaitReason.PARKED)
            self._moved = self._count(_MOVED) if parked else 0
        return self._moved

    def _count_in(self, state: str, reason: str = "") -> int:
        """How many rows say so, counted once: without an index on the state every count walks over all rows."""
        if (state, reason) not in self._counts:
            which = Which(states=(state,), reasons=(reason,) if reason else ())
            self._counts[state, reason] = self._count(which)
        return self._counts[state, reason]

    def _count(self, which: Which) -> int:
        return self._store.count_runs(which) if self._whole is None else len(self._rows(which))

    def _rows(self, which: Which, *, limit: int = EVERY, skip: int = 0) -> list[Run]:
        if self._whole is None:
            try:
                return self._store.find_runs(which, limit=limit, skip=skip)
            except CheckpointCorrupt:
                self._whole, findings = every_run(self._store)
                self.damaged = [damage_of(finding) for finding in findings]
        from perdure.store.memory import is_meant  # only damage makes us narrow by ourselves

        runs = sorted(self._whole, key=lambda run: run.created_at, reverse=True)
        return [run for run in runs if is_meant(run, which)][skip:][:limit]


def _asks_for_life(which: Which) -> bool:
    return len(_HELD_OR_NOT.intersection(which.states)) == 1
