"""What code inside a run can ask for: recorded time, ids and chance, its own place, whether a code change applies."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perdure import clock
from perdure.bodies import Cost
from perdure.engine.drive import Commit, drive
from perdure.engine.scope import current_frame
from perdure.engine.step import step
from perdure.errors import NotInRun, UsageError
from perdure.records import Kind
from perdure.replay import Call, is_patched

if TYPE_CHECKING:
    from perdure.engine.scope import Frame


@step(name="perdure.now")
def now() -> datetime:
    """The current time, UTC; inside a run the same at every replay."""
    return clock.instant(clock.wall_seconds())


@step(name="perdure.uuid")
def uuid() -> UUID:
    """A random UUID; inside a run the same at every replay."""
    return clock.new_uuid()


@step(name="perdure.random")
def random() -> float:
    """A random number in [0, 1); inside a run the same at every replay."""
    return clock.new_fraction()


class Current:
    """The run and the call that the asking code is part of."""

    def __init__(self, frame: Frame | None) -> None:
        self._frame = frame
        self._fresh_key = "" if frame is not None else clock.new_uuid().hex
        self._fresh_state: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """The idempotency key of the effect being performed; a fresh one outside a run."""
        frame = self._frame
        if frame is None or frame.active is None:
            return self._fresh_key
        if not frame.body:
            raise NotInRun(
                "perdure.current().key was read in the agent itself.", hint="read it inside an effect or a step"
            )
        return frame.effect_key or frame.active.effect_key(frame.step_key)

    @property
    def run_id(self) -> str:
        """The id of this run; empty outside one."""
        return self._frame.active.row.run_id if self._frame and self._frame.active else ""

    @property
    def run_name(self) -> str:
        """The readable name of this run; empty outside one."""
        return self._frame.active.row.name if self._frame and self._frame.active else ""

    @property
    def attempt(self) -> int:
        """Which attempt of the call this is, from 1."""
        return self._frame.attempt if self._frame else 1

    @property
    def delivery(self) -> int:
        """How many workers in a row, this one included, were given the run since it last completed a step."""
        return max(1, self._frame.active.row.deliveries) if self._frame and self._frame.active else 1

    @property
    def epoch(self) -> int:
        """A number that grows each time the run changes hands: a fencing token for the outside."""
        return self._frame.active.row.epoch if self._frame and self._frame.active else 0

    @property
    def state(self) -> dict[str, Any]:
        """The run's working state: a small dict, stored as changes at step boundaries, rebuilt by the replay."""
        if self._frame and self._frame.body:
            raise UsageError(
                f"The working state was used inside the body of {self._frame.body}, which a replay does not execute.",
                safe="nothing was changed.",
                hint="pass what the step needs as arguments, and set the state from its result in the agent",
            )
        return self._frame.active.state if self._frame and self._frame.active else self._fresh_state

    def spent(self, *, dollars: float = 0.0, tokens: int = 0) -> None:
        """Say what this call took, such as a model's price: kept with the call, and counted in what a resume saves.

        Called several times, it adds up. Outside a run it does nothing.
        """
        for name, amount in (("dollars", dollars), ("tokens", tokens)):
            if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 <= amount < math.inf:
                raise UsageError(
                    f"current().spent({name}={amount!r}).",
                    safe="nothing was recorded.",
                    hint=f"a number that is not below 0, such as {name}={'0.002' if name == 'dollars' else '412'}",
                )
        frame = self._frame
        if frame is None or frame.active is None:
            return
        if not frame.body:
            raise NotInRun(
                "perdure.current().spent() was called in the agent itself.", hint="call it inside a step or an effect"
            )
        frame.active.spend(frame.step_key, Cost(int(tokens), float(dollars)))


def current() -> Current:
    """The run and the call that this code is part of."""
    return Current(current_frame())


def patched(name: str) -> bool:
    """Whether to take the new path of a code change: True unless this run already went past here with the old code."""
    frame = current_frame()
    if frame is None or frame.active is None or frame.body:
        return True
    active, scope = frame.active, frame.scope
    if active.signal is not None:
        raise active.signal
    is_new, key = is_patched(active.journal, scope=scope.path, index=scope.calls, spawned=scope.spawned, name=name)
    if key:
        ticket, record = active.submit(Kind.PATCHED, Call(key, name, b"", "step"), None)
        active.journal.absorb(record)
        drive(_committed(Commit(active, ticket)))
    return is_new


def _committed(commit: Commit) -> Any:
    yield commit
