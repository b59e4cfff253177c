"""Moving the runs of one store to another: in which portions, how each is proved, and what became of it.

Every portion comes in at the target, is read back and compared, is closed at the source, and is let go: three
transactions. Ended anywhere and begun again, a move finds in the two stores how far it was.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from perdure.errors import CheckpointCorrupt, PerdureError, RunHeld, UsageError
from perdure.records import FINISHED, Run
from perdure.store.family import families_of
from perdure.store.handover import carry_debounces, declare_queues, switch_off, switch_on
from perdure.store.lease import read_park
from perdure.store.moving import before_departure, has_left, is_arriving, migrate_command, reception, token_of
from perdure.store.portable import addresses_of
from perdure.store.protocol import Arrival, Departure, Which, Whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.records import Mail
    from perdure.store.protocol import Store

RUNS_AT_ONCE: Final = 200
BYTES_AT_ONCE: Final = 4_000_000
_ATTEMPTS: Final = 3


class Left(Struct, frozen=True):
    """A run that was not moved, and why."""

    run_id: str
    name: str
    why: str
    hint: str = ""


class Tally(Struct):
    """What a move has come to."""

    total: int = 0
    moved: int = 0
    copied: int = 0
    """Finished runs, which stay readable where they were."""
    before: int = 0
    """Those that an earlier move brought to the target."""
    records: int = 0
    mail: int = 0
    blobs: int = 0
    queues: int = 0
    schedules: int = 0
    left: list[Left] = []

    @property
    def done(self) -> int:
        """How many runs it is over with."""
        return self.moved + self.copied + self.before + len(self.left)


class Passage(Struct, frozen=True):
    """What is to be done for one run: come in, be closed, be let go; what is left out was done before."""

    run: Run
    arrival: Arrival | None = None
    departure: Departure | None = None
    token: str = ""
    """With which it is let go; empty for a finished run."""


class Mover:
    """One move from store to store."""

    def __init__(self, source: Store, target: Store, *, names: tuple[str, str], unfinished: bool = False) -> None:
        self._source = source
        self._target = target
        self._names = names
        self._unfinished = unfinished
        self.tally = Tally()

    def move(self) -> Iterator[Tally]:
        """Move every run; yields how far it is, after each portion."""
        self.refuse_same()
        self.tally.queues = declare_queues(self._source, self._target)
        self.tally.schedules = switch_off(self._source, self._target)
        families = self._families()
        yield self.tally
        for portion in self._portions(families):
            waiting, attempt = portion, 1
            while waiting:
                waiting = self._carry(waiting, is_last=attempt == _ATTEMPTS)
                attempt += 1
            yield self.tally
        self._compare()
        carry_debounces(self._source, self._target)
        switch_on(self._source, self._target)

    def plan(self) -> Tally:
        """What a move would come to, as things are now; nothing is written."""
        for family in self._families():
            try:
                passages = [self._planned(run_id) for run_id in family]
            except PerdureError as error:
                self._leave(family, error)
                continue
            for passage in passages:
                self._count(passage)
        return self.tally

    def refuse_same(self) -> None:
        """Refuse to move a store into itself, by whatever names it is called: each would close what it has just got."""
        if self._source.read_worker(self._target.join().worker_id) is not None:
            raise UsageError(
                f"{self._names[0]} and {self._names[1]} are one store.",
                safe="nothing was changed.",
                hint="name two stores: perdure migrate --from PATH --to postgresql://…",
            )

    def _families(self) -> list[list[str]]:
        families, damaged = families_of(self._source, unfinished=self._unfinished)
        self.tally.left += [Left(each.run_id, each.where, each.what, "perdure verify") for each in damaged]
        self.tally.total = sum(map(len, families)) + len(damaged)
        return families

    def _portions(self, families: list[list[str]]) -> Iterator[list[list[Whole]]]:
        """Families as they are now, a few at a time; one that cannot be read stays where it is."""
        portion: list[list[Whole]] = []
        size = 0
        for handful in _handfuls(families):
            for wholes in self._loaded(handful):
                portion.append(wholes)
                size += sum(len(record.body) for whole in wholes for record in whole.records)
                if size >= BYTES_AT_ONCE:
                    yield portion
                    portion, size = [], 0
            if portion:
                yield portion
                portion, size = [], 0

    def _loaded(self, families: list[list[str]]) -> Iterator[list[Whole]]:
        loaded = self._source.load_wholes([run_id for family in families for run_id in family])
        for family in families:
            found = [loaded[run_id] for run_id in family if run_id in loaded]
            error = next((each for each in found if isinstance(each, PerdureError)), None)
            if error is not None:
                self._leave(family, error)
                continue
            self.tally.total -= len(family) - len(found)  # somebody pruned them meanwhile
            yield [whole for whole in found if isinstance(whole, Whole)]

    def _carry(self, portion: list[list[Whole]], *, is_last: bool) -> list[list[Whole]]:
        """Move a portion; the families that changed meanwhile are returned, read anew."""
        ready = self._received(portion)
        closing = [[each.departure for each in family if each.departure is not None] for family in ready]
        outcomes = self._source.close_runs(closing)
        changed: list[list[Whole]] = []
        gone: list[Passage] = []
        for family, outcome in zip(ready, outcomes, strict=True):
            if outcome is None:
                gone += family
            elif isinstance(outcome, PerdureError) and (is_last or isinstance(outcome, RunHeld)):
                self._leave([each.run.run_id for each in family], outcome)
            else:
                changed.extend(self._loaded([[each.run.run_id for each in family]]))
        self._target.release_runs([(each.run.run_id, each.token) for each in gone if each.token])
        for passage in gone:
            self._count(passage)
        return changed

    def _received(self, portion: list[list[Whole]]) -> list[list[Passage]]:
        """The families of a portion that are at the target now, proved; the others are left, each with its reason."""
        ready: list[list[Passage]] = []
        for family in portion:
            try:
                ready.append([self.passage(whole) for whole in family])
            except PerdureError as error:
                self._leave([whole.run.run_id for whole in family], error)
        arrivals = [each.arrival for family in ready for each in family if each.arrival is not None]
        outcomes = self._target.receive_runs(arrivals, self._source.load_blob)
        refused = {
            arrival.whole.run.run_id: outcome
            for arrival, outcome in zip(arrivals, outcomes, strict=True)
            if isinstance(outcome, PerdureError)
        }
        kept: list[list[Passage]] = []
        for passages in ready:
            refusal = next((refused[each.run.run_id] for each in passages if each.run.run_id in refused), None)
            if refusal is not None:
                self._leave([each.run.run_id for each in passages], refusal)
                continue
            kept.append(passages)
        self._prove([each.arrival for passages in kept for each in passages if each.arrival is not None])
        return kept

    def passage(self, whole: Whole) -> Passage:
        """What is to be done for this run, given how far an earlier move was."""
        run = whole.run
        if is_arriving(run):
            park = read_park(run)
            raise UsageError(park.message, safe="it was left where it is.", hint=park.hint)
        if has_left(run):
            return self._resumed(whole)
        if run.state not in FINISHED:
            self._refuse_held(run)
        token = token_of(whole, self._names[0])
        departure = Departure(run, tuple(mail.digest for mail in whole.mail), *self._names, token)
        return Passage(run, self._arrival(whole, token), departure, "" if run.state in FINISHED else token)

    def _resumed(self, whole: Whole) -> Passage:
        """A run that was closed here before: its move is ended if it came here, and anything else is left as it is."""
        earlier = before_departure(whole)
        run, move = earlier.run, read_park(whole.run).move
        there = self._target.read_run(run.run_id)
        if move is None or (there is None and run.state not in FINISHED):
            where = move.target if move is not None else "another store"
            raise UsageError(
                f"Run {run.name} was moved to {where}.",
                safe="it goes on there.",
                hint=migrate_command(where, self._names[1]),
            )
        if there is None:
            return Passage(run, self._arrival(earlier, move.token))
        if not is_arriving(there):
            return Passage(run)
        coming = read_park(there).move
        if coming is not None and coming.source != move.source:
            raise UsageError(f"Run {run.name} is on its way to {self._names[1]} from {coming.source}.")
        return Passage(run, self._arrival(earlier, move.token), token=move.token)

    def _arrival(self, whole: Whole, token: str) -> Arrival:
        blobs = addresses_of(whole, self._source.load_blob)
        return Arrival(whole, *self._names, token, tuple(blobs))

    def _prove(self, arrivals: list[Arrival]) -> None:
        """Read runs back from where they came in, and compare them with what was sent."""
        loaded = self._target.load_wholes([arrival.whole.run.run_id for arrival in arrivals])
        for arrival in arrivals:
            sent, there = arrival.whole, loaded.get(arrival.whole.run.run_id)
            if isinstance(there, PerdureError):
                raise there
            for address in arrival.blobs:
                self._target.load_blob(address)
            is_same = (
                there is not None
                and there.records == sent.records
                and [*map(_words, there.mail)] == [*map(_words, sent.mail)]
            )
            if not is_same:
                raise CheckpointCorrupt(
                    f"Run {sent.run.name} is not at {self._names[1]} as it was sent.",
                    safe=f"it is as it was at {self._names[0]}.",
                    hint=f"perdure verify --store {self._names[1]}",
                )

    def _planned(self, run_id: str) -> Passage:
        run = self._source.read_run(run_id)
        if run is None:
            raise UsageError("It is gone.")
        if has_left(run):
            return Passage(run)
        if run.state not in FINISHED:
            self._refuse_held(run)
        arrival = Arrival(Whole(run, ()), *self._names, "")
        reception(self._target.read_run(run_id), arrival)
        return Passage(run, arrival)

    def _refuse_held(self, run: Run) -> None:
        if run.holder and self._source.is_running(run, stall_seconds=math.inf):
            holder = self._source.read_worker(run.holder)
            who = f"pid {holder.pid} on {holder.host}" if holder else run.holder
            raise RunHeld(
                f"Run {run.name} is held by {who}.",
                safe="it goes on where it is.",
                hint=f"perdure drain --all --store {self._names[0]}, then move again",
            )

    def _leave(self, family: list[str], error: PerdureError) -> None:
        for run_id in family:
            try:
                run = self._source.read_run(run_id)
            except CheckpointCorrupt:
                run = None
            self.tally.left.append(Left(run_id, run.name if run else run_id, error.message, error.hint))

    def _count(self, passage: Passage) -> None:
        tally, arrival = self.tally, passage.arrival
        if arrival is None:
            tally.before += 1
            return
        if passage.run.state in FINISHED:
            tally.copied += 1
        else:
            tally.moved += 1
        tally.records += len(arrival.whole.records)
        tally.mail += len(arrival.whole.mail)
        tally.blobs += len(arrival.blobs)

    def _compare(self) -> None:
        """Every run of the source is at the target, or was left with a reason."""
        tally = self.tally
        there = self._target.count_runs(Which())
        if tally.done != tally.total or there < tally.total - len(tally.left):
            raise CheckpointCorrupt(
                f"{tally.total:,} runs were to be moved, {tally.done:,} were dealt with, {there:,} are at the target.",
                safe="each run can go on in one store only.",
                hint="move again: what is done is not done twice",
            )


def _words(mail: Mail) -> Mail:
    """A mail without its number, which is another in each store."""
    return msgspec.structs.replace(mail, mail_id=0)


def _handfuls(families: list[list[str]]) -> Iterator[list[list[str]]]:
    """A few families at a time, about as many runs as are worth a transaction."""
    handful: list[list[str]] = []
    for family in families:
        handful.append(family)
        if sum(map(len, handful)) >= RUNS_AT_ONCE:
            yield handful
            handful = []
    if handful:
        yield handful
