"""What this process knows of the run that a script is: recorded answers, what models asked for, what to report."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import msgspec

from perdure import codec, typed
from perdure.adapters.http.conversation import Requests, StoredRequest
from perdure.adapters.http.record import Answer
from perdure.adapters.tools.context import Memory
from perdure.adapters.userland.values import STRAY
from perdure.bodies import Note
from perdure.engine.drive import Commit
from perdure.engine.scope import Frame, Scope, current_frame
from perdure.records import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.adapters.http.canonical import Reader
    from perdure.adapters.http.matching import Recorded
    from perdure.adapters.http.prices import Prices
    from perdure.adapters.http.redact import Redactor
    from perdure.adapters.script.coverage import Coverage
    from perdure.adapters.tools.pending import Pending
    from perdure.adapters.tools.policy import Policies
    from perdure.adapters.tools.seams import Seam
    from perdure.adapters.userland.values import Values
    from perdure.engine.active import Active
    from perdure.store.writer import Ticket


class Conduct:
    """One script in this process, from its first line to its last."""

    def __init__(
        self,
        active: Active,
        *,
        reader: Reader,
        recorded: Recorded,
        redactor: Redactor,
        pending: Pending,
        policies: Policies,
        coverage: Coverage,
        values: Values,
        prices: Prices,
        seams: Sequence[Seam] = (),
    ) -> None:
        self.active = active
        self.reader = reader
        self.recorded = recorded
        self.redactor = redactor
        self.pending = pending
        self.policies = policies
        self.coverage = coverage
        self.values = values
        self.prices = prices
        self.seams = tuple(seams)
        self.requests = Requests()
        self.memory = Memory(_nobodys, coverage)
        self._stray = Frame(active, Scope(STRAY), blocking=True)
        self._inside: dict[str, Scope] = {}
        self._lock = threading.Lock()

    def stored_request(self, key: str) -> StoredRequest | None:
        """What was asked in the model call of this key."""
        done = entry.done if (entry := self.active.journal.entries.get(key)) is not None else None
        if done is None:
            return None
        answer: Answer = codec.unseal(self.active.load_value(done.value, done.blob), Answer)
        return typed.read(answer.request, StoredRequest)

    def keep_notes(self) -> None:
        """Write them, and go on when they are committed."""
        if (ticket := self.write_notes()) is not None:
            Commit(self.active, ticket).now()

    def write_notes(self) -> Ticket | None:
        """Have what the script has read of clocks and done unprotected since the last record written with the next."""
        notes = self.coverage.take_unwritten()
        if drawn := self.values.take_unwritten():
            notes.append(Note(about="drawn", text=msgspec.json.encode(drawn).decode()))
        ticket = None
        for note in notes:
            ticket, _ = self.active.submit(Kind.NOTE, None, note)
        return ticket

    def frame(self) -> Frame:
        """Where a call stands that is made here and now; inside a tool it stands in a strand of that tool."""
        frame = current_frame()
        if frame is None or frame.active is None:
            return self._stray
        if not frame.body:
            return frame
        with self._lock:
            path = f"{frame.scope.path}/{frame.step_key.partition('@')[0]}"
            scope = self._inside.setdefault(path, Scope(path, strand=frame.scope.strand))
        return Frame(frame.active, scope, caller=frame, blocking=frame.blocking)


def _nobodys(_file: str) -> bool:
    """Nothing is known yet of whose code it is."""
    return False


_conduct: Conduct | None = None


def begin(conduct: Conduct) -> None:
    """From here on, what the script does is recorded."""
    global _conduct  # noqa: PLW0603 - one script is executed by one process
    _conduct = conduct


def end() -> None:
    """The script is over: what its libraries still do on their way out is not recorded."""
    global _conduct  # noqa: PLW0603
    _conduct = None


os.register_at_fork(after_in_child=end)  # a forked process extends no journal: there nothing is recorded


def conducted() -> Conduct | None:
    """The script that is executed here, if any."""
    return _conduct
