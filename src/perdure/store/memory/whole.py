"""Runs that go or come as a whole: repaired, pruned, imported, moved."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from perdure.errors import PerdureError
from perdure.records import FINISHED, Queue, Record, Run
from perdure.settings import Settings
from perdure.store import blobs as large
from perdure.store.chain import heard_of, irreparable, is_whole, needs_repair, rebuilt, repaired, verified_run
from perdure.store.lease import Presence, held
from perdure.store.memory.shelf import OnShelf
from perdure.store.moving import Reception, arriving, departed, joined, reception, refuse_departure, released
from perdure.store.protocol import Arrival, Compacted, Departure, Old, Outcome, Prunable, Pruned, Whole
from perdure.store.prune import REFERRING, addresses, in_order, is_old, is_old_failure, is_old_named, mentions, needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class WholesOnShelf(OnShelf):
    """The verbs that are about all that is kept of a run."""

    def repair_run(self, run_id: str) -> int:
        self.join()
        with self._open() as shelf:
            run, journal = self._known(run_id), shelf.journals[run_id]
            prefix = self._prefix(run)
            if is_whole(run):
                if not needs_repair(run, prefix):
                    return 0
                holder, presence = self._presence(run, Settings().stall_seconds)
                if presence is Presence.ALIVE:
                    raise held(run, holder)
            if not prefix.records:
                raise irreparable(run.name if is_whole(run) else run_id, prefix)
            kept = len(prefix.records)
            bare = run if is_whole(run) else rebuilt(run_id, run.name, prefix)
            after, record = repaired(bare, prefix, total=len(journal))
            shelf.set_aside.setdefault(run_id, []).extend(journal[kept:])
            shelf.runs[run_id], shelf.journals[run_id] = after, [*prefix.records, record]
            return len(journal) - kept

    def find_prunable(self, old: Old) -> Prunable:
        with self._open() as shelf:
            going, staying, referred = self._survey(old)
            mail = [mail for mail in shelf.mail.values() if mail.run_id in {run.run_id for run in going}]
            blobs = [stored for digest, stored in shelf.blobs.items() if digest not in referred]
            return Prunable(
                runs=tuple(going),
                failed=sum(is_old_failure(run, old) for run in shelf.runs.values()),
                named=sum(is_old_named(run, old) for run in shelf.runs.values()),
                needed=staying,
                records=sum(run.length for run in going),
                mail=len(mail),
                blobs=len(blobs),
                size=sum(self._size(run) for run in going) + sum(map(len, blobs)),
            )

    def prune(self, old: Old) -> Iterator[Pruned]:
        self.join()
        with self._open() as shelf:
            would = self.find_prunable(old)
            _, _, referred = self._survey(old)
            for run in would.runs:
                for of_runs in (shelf.runs, shelf.journals, shelf.set_aside):
                    of_runs.pop(run.run_id, None)
            shelf.mail = {number: mail for number, mail in shelf.mail.items() if mail.run_id in shelf.runs}
            shelf.blobs = {digest: stored for digest, stored in shelf.blobs.items() if digest in referred}
        yield Pruned(len(would.runs), would.records, would.mail, would.blobs, would.size)

    def compact(self) -> Compacted:
        with self._open():
            return Compacted()

    def load_whole(self, run_id: str) -> Whole:
        with self._open():
            run, records = verified_run(self._known(run_id)), self.load_journal(run_id)
            return Whole(run, tuple(records), tuple(self.read_mail(run_id)))

    def load_wholes(self, run_ids: Sequence[str]) -> dict[str, Whole | PerdureError]:
        found: dict[str, Whole | PerdureError] = {}
        with self._open() as shelf:
            for run_id in run_ids:
                try:
                    if run_id in shelf.runs:
                        found[run_id] = self.load_whole(run_id)
                except PerdureError as error:
                    found[run_id] = error
        return found

    def import_run(self, whole: Whole, blobs: Iterable[tuple[bytes, bytes]] = ()) -> Run:
        self.join()
        with self._open() as shelf:
            run = whole.run
            if run.run_id in shelf.runs:
                return verified_run(shelf.runs[run.run_id])
            stored = dict(blobs)
            for mail in whole.mail:
                mail_id = self._next_mail()
                shelf.mail[mail_id] = msgspec.structs.replace(mail, mail_id=mail_id)
                run = heard_of(run, mail_id)
            shelf.queues.setdefault(run.queue, Queue(run.queue))
            shelf.runs[run.run_id] = run
            shelf.journals[run.run_id] = list(whole.records)
            shelf.blobs.update(stored)
            return run

    def receive_runs(self, arrivals: Sequence[Arrival], load_blob: Callable[[bytes], bytes]) -> list[Outcome]:
        self.join()
        with self._open():
            return [self._received(arrival, load_blob) for arrival in arrivals]

    def close_runs(self, families: Sequence[Sequence[Departure]]) -> list[Outcome]:
        self.join()
        with self._open():
            return [self._closed(family) for family in families]

    def release_runs(self, moves: Sequence[tuple[str, str]]) -> list[Outcome]:
        self.join()
        with self._open() as shelf:
            for run_id, token in moves:
                run = released(shelf.runs.get(run_id), token)
                if run is not None:
                    shelf.runs[run_id] = run
            return [None] * len(moves)

    def _survey(self, old: Old) -> tuple[list[Run], int, set[bytes]]:
        """What may go, how many must stay for the sake of others, and the large values that others refer to."""
        shelf = self._shelf
        runs = [verified_run(run) for run in shelf.runs.values()]
        going = {run.run_id for run in runs if is_old(run, old)}
        unfinished = [run.run_id for run in runs if run.run_id not in going and run.state not in FINISHED]
        referring = [record for run_id in unfinished for record in shelf.journals[run_id] if record.kind in REFERRING]
        mentioned = set().union(*(mentions(record.body) for record in referring))
        staying = needed(runs, going, mentioned)
        kept = [run_id for run_id in shelf.runs if run_id not in going - staying]
        bodies = [record.body for run_id in kept for record in self._every_record(run_id)]
        referred = set().union(*(addresses(body, self.load_blob) for body in bodies)) if shelf.blobs else set()
        return in_order(run for run in runs if run.run_id in going - staying), len(staying), referred

    def _every_record(self, run_id: str) -> list[Record]:
        return self._shelf.journals[run_id] + self._shelf.set_aside.get(run_id, [])

    def _size(self, run: Run) -> int:
        mail = [mail.body for mail in self._shelf.mail.values() if mail.run_id == run.run_id]
        return sum(len(body.encode()) for body in [record.body for record in self._shelf.journals[run.run_id]] + mail)

    def _received(self, arrival: Arrival, load_blob: Callable[[bytes], bytes]) -> Outcome:
        shelf, whole = self._shelf, arrival.whole
        run_id = whole.run.run_id
        known, here = shelf.runs.get(run_id), self.read_mail(run_id)
        try:
            if reception(known, arrival) is Reception.SAME:
                return None
            if known is not None:
                joined(known, shelf.journals[run_id], here, arrival)
        except PerdureError as error:
            return error
        numbers = [mail.mail_id for mail in here]
        for number, mail in enumerate(whole.mail):
            if number == len(numbers):
                numbers.append(self._next_mail())
            shelf.mail[numbers[number]] = msgspec.structs.replace(mail, mail_id=numbers[number])
        shelf.queues.setdefault(whole.run.queue, Queue(whole.run.queue))
        shelf.runs[run_id] = arriving(arrival, numbers, known=known)
        shelf.journals[run_id] = list(whole.records)
        shelf.blobs.update(large.pack(load_blob(address)) for address in arrival.blobs)
        return None

    def _closed(self, family: Sequence[Departure]) -> Outcome:
        shelf, still_open = self._shelf, []
        try:
            for departure in family:
                run_id = departure.run.run_id
                mail, look = self.read_mail(run_id), self._presence(departure.run, math.inf)
                if not refuse_departure(shelf.runs.get(run_id), mail, departure, *look):
                    still_open.append((departure, max((each.mail_id for each in mail), default=0)))
        except PerdureError as error:
            return error
        for departure, heard in still_open:
            run, records = departed(departure, heard=heard)
            shelf.runs[run.run_id] = run
            shelf.journals[run.run_id].extend(records)
        return None
