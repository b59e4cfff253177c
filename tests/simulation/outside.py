"""The outside world: it does what it was asked some time after it was asked, whether or not the asker still lives.

Where it honours a key, the same key is done once. Everything else carries the epoch of its sender as a fencing token:
what is sent by somebody who has lost the run by then is refused on arrival, and what has arrived is done. It answers
some late or never, and tells the truth to whoever looks something up.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from perdure.engine.scope import current_frame
from tests.simulation import now_playing
from tests.simulation.threads import Event

if TYPE_CHECKING:
    from perdure.engine.settle import Intent
    from tests.simulation.play import Play

IN_FLIGHT_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 4.0
"""How long a sender waits for its answer."""


class Refused(Exception):
    """The outside did not do it, and says so."""


@dataclass
class Request:
    """Something the outside was asked to do."""

    run_id: str
    place: str
    step_key: str
    key: str
    attempt: int
    epoch: int
    keyed: bool
    receipt: str = ""
    is_pending: bool = True
    answered: Event = field(default_factory=Event)

    @property
    def is_done(self) -> bool:
        return bool(self.receipt)

    @property
    def counts(self) -> bool:
        """Whether it was done, or still may be."""
        return self.is_pending or self.is_done


class Outside:
    """Everything that was asked, and what became of it."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.requests: dict[tuple[str, str], list[Request]] = defaultdict(list)
        """By run and place in its plan."""
        self.by_step: dict[tuple[str, str], list[Request]] = defaultdict(list)
        """By run and key of the call."""
        self._receipts: dict[str, str] = {}
        self._count = 0

    def perform(self, place: str, *, keyed: bool, refuses: int) -> str:
        """Have something done, from the body of an effect; the receipt."""
        process, chance = now_playing.process(), self._play.chance
        request = self._request(place, keyed=keyed)
        self._play.witness.begins(request.run_id, request.step_key, request.epoch)
        self._play.witness.sends(request, self.requests[request.run_id, place])
        process.through("body sends", lambda: self._arrive(request, is_refused=request.attempt <= refuses), about=place)
        if not request.counts:
            raise Refused(place)
        is_mute = chance.random() < self._play.plan.mute
        if is_mute or not request.answered.wait(ANSWER_SECONDS):
            if is_mute:
                self._play.scheduler.wait(ANSWER_SECONDS)
            raise TimeoutError(f"no answer about {place}")
        return process.through("body has its answer", lambda: request.receipt, about=place)

    def lookup(self, intent: Intent) -> str:
        """The receipt of what was done under this key, so far; empty where nothing was."""
        process = now_playing.process()
        return process.through("check asks", lambda: self._receipts.get(intent.key, ""), about=intent.key[:6])

    def receipt_of(self, run_id: str, step_key: str) -> str | None:
        """What a person who waits until nothing is under way finds; None where something still may land."""
        requests = self.by_step[run_id, step_key]
        if any(request.is_pending for request in requests):
            return None
        return next((request.receipt for request in requests if request.is_done), "")

    def _request(self, place: str, *, keyed: bool) -> Request:
        frame = current_frame()
        if frame is None or frame.active is None:
            raise TypeError(frame)
        row = frame.active.row
        return Request(row.run_id, place, frame.step_key, frame.effect_key, frame.attempt, row.epoch, keyed)

    def _arrive(self, request: Request, *, is_refused: bool) -> None:
        scheduler = self._play.scheduler
        row = self._play.witness.row(request.run_id)
        is_stale = row is None or row.epoch != request.epoch
        if is_refused or (is_stale and not request.keyed):
            request.is_pending = False
            return
        self.requests[request.run_id, request.place].append(request)
        self.by_step[request.run_id, request.step_key].append(request)
        seconds = self._play.chance.choice((0.0, 0.01, 0.2, 0.9)) * IN_FLIGHT_SECONDS
        if seconds:
            scheduler.at(scheduler.now + seconds, lambda: self._land(request))
        else:
            self._land(request)

    def _land(self, request: Request) -> None:
        request.is_pending = False
        known = self._receipts.get(request.key, "") if request.keyed else ""
        if not known:
            self._count += 1
            known = self._receipts[request.key] = f"r{self._count}"
            self._play.witness.done(request, self.requests[request.run_id, request.place])
        request.receipt = known
        request.answered.set()
