"""A journal as a list of moments: what happened, in order, with the number of the step it happened to. Pure."""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct

from perdure.bodies import Cost, Delivery, Ended, read_body
from perdure.cli.wording import ending_words, run_words, step_words
from perdure.records import COMPLETIONS, Kind, RunState
from perdure.replay import Journal
from perdure.status import numbers_of
from perdure.store.lease import with_death

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perdure.records import Record

NO_RUNS: Final[Mapping[str, str]] = MappingProxyType({})
NO_DEATHS: Final = NO_RUNS
_DELIVERY: Final = Kind.DELIVERY.value
_ENDED: Final = Kind.ENDED.value


_INNER: Final = frozenset({"seed", "drawn"})
"""Notes that a replay reads, and that tell a person nothing."""


class Moment(Struct, frozen=True, omit_defaults=True):
    """One record of a journal, in words; what does not apply to it is left out."""

    seq: Annotated[int, Meta(description="its place in the journal, from 0")]
    at: Annotated[float, Meta(description="when it was recorded")]
    record: Annotated[str, Meta(description="its kind: started, delivery, step, intent, receipt, wait, ended, …")]
    text: Annotated[str, Meta(description="what it says, in words")]
    number: Annotated[int, Meta(description="the number of the step it belongs to")] = 0
    key: Annotated[str, Meta(description="the key of the step")] = ""
    name: Annotated[str, Meta(description="the name of the step")] = ""
    kind: Annotated[str, Meta(description="step, effect or wait")] = ""
    call: Annotated[str, Meta(description="the call, as a person would write it")] = ""
    attempt: Annotated[int, Meta(description="which attempt")] = 0
    seconds: Annotated[float, Meta(description="how long the attempt took")] = 0.0
    failed: Annotated[bool, Meta(description="whether it tells of a failure")] = False
    scope: Annotated[list[str], Meta(description="the scopes it stands in below the agent's own, outermost first")] = []
    tokens: Annotated[int, Meta(description="tokens the step says it took")] = 0
    dollars: Annotated[float, Meta(description="dollars the step says it took")] = 0.0
    child: Annotated[str, Meta(description="the id of the child run that a wait is for")] = ""
    delivery: Annotated[int, Meta(description="of a delivery: which one, from 1")] = 0
    replayed: Annotated[int, Meta(description="of a delivery: how many completed steps were not repeated")] = 0
    pid: Annotated[int, Meta(description="of a delivery: the process that was given the run")] = 0
    host: Annotated[str, Meta(description="of a delivery: that process's host")] = ""
    version: Annotated[str, Meta(description="of a delivery: the version of that process's code")] = ""


class Teller:
    """Tells records of one journal as moments; only those that are asked for are read.

    `deaths` tells how workers died, by their ids: more may be known now than when the next one took the run.
    """

    def __init__(
        self, records: Sequence[Record], journal: Journal | None = None, *, deaths: Mapping[str, str] = NO_DEATHS
    ) -> None:
        self.journal = journal or Journal(records)
        self._ends = _ends(records, deaths) if deaths else {}
        self.numbers = numbers_of(self.journal)
        self._deliveries = _deliveries(records)

    def tell(self, records: Iterable[Record], runs: Mapping[str, str] = NO_RUNS) -> list[Moment]:
        """These records; `runs` are the words for other runs that they name, by id."""
        return [self._moment(record, runs) for record in records if not _is_inner(record)]

    def _moment(self, record: Record, runs: Mapping[str, str]) -> Moment:
        body = None if record.kind == Kind.PATCHED else read_body(record)
        if record.key in self.numbers:
            return self._of_step(record, body, runs)
        if isinstance(body, Delivery):
            return self._of_delivery(record, body)
        failed = isinstance(body, Ended) and body.state == RunState.FAILED
        words = ending_words(body, runs) if isinstance(body, Ended) else run_words(record, body)
        return Moment(record.seq, record.at, record.kind, words, failed=failed)

    def _of_delivery(self, record: Record, body: Delivery) -> Moment:
        number, replayed = self._deliveries[record.seq]
        again = f"resumed, {replayed:,} step{'' if replayed == 1 else 's'} replayed"
        words = f"delivery {number}: {again if number > 1 else f'pid {body.pid} on {body.host}'}"
        words += f", version {body.version}" if body.version else ""
        before = with_death(body.before, self._ends.get(record.seq, ""))
        return Moment(
            record.seq,
            record.at,
            record.kind,
            f"{before} · {words}" if body.before else words,
            delivery=number,
            replayed=replayed,
            pid=body.pid,
            host=body.host,
            version=body.version,
        )

    def _of_step(self, record: Record, body: Any, runs: Mapping[str, str]) -> Moment:  # noqa: ANN401 - its body
        entry = self.journal.entries[record.key]
        cost: Cost = getattr(body, "cost", None) or Cost()
        return Moment(
            record.seq,
            record.at,
            record.kind,
            step_words(record, body, entry, runs),
            number=self.numbers[record.key],
            key=record.key,
            name=record.name,
            kind=entry.kind,
            call=entry.shown_call(),
            attempt=getattr(body, "attempt", 0),
            seconds=getattr(body, "seconds", 0.0) or 0.0,
            failed=getattr(body, "failure", None) is not None,
            scope=scope_of(record.key),
            tokens=cost.tokens,
            dollars=cost.dollars or 0.0,
            child=getattr(body, "child", ""),
        )


def referred_runs(records: Iterable[Record]) -> list[str]:
    """The ids of the runs that these records name: children, and the run that goes on in its place."""
    found = []
    for record in records:
        if record.kind == Kind.WAIT:
            found.append(read_body(record).child)
        elif record.kind == Kind.ENDED:
            found.append(read_body(record).continued)
    return [run_id for run_id in found if run_id]


def scope_of(key: str) -> list[str]:
    """The scopes of a key below the agent's own, outermost first; for an item of a map the last is the map's key."""
    if key.startswith("="):
        return []
    place, bracket, _ = key.partition("[")
    scopes = place.rpartition(".")[0].split("/")[1:]
    return [*scopes, place] if bracket else scopes


def _ends(records: Sequence[Record], deaths: Mapping[str, str]) -> dict[int, str]:
    """Of each delivery, by its place in the journal: how the worker before it died."""
    delivered = [(record.seq, read_body(record).worker) for record in records if record.kind == _DELIVERY]
    return {seq: deaths.get(worker, "") for (_, worker), (seq, _) in itertools.pairwise(delivered)}


def _deliveries(records: Sequence[Record]) -> dict[int, tuple[int, int]]:
    """Of each delivery, by its place in the journal: its number, and how many steps were complete by then."""
    found: dict[int, tuple[int, int]] = {}
    complete: set[str] = set()
    for record in records:
        if record.kind in COMPLETIONS:
            complete.add(record.key)
        elif record.kind == _DELIVERY:
            found[record.seq] = (len(found) + 1, len(complete))
        elif record.kind == _ENDED:
            complete.difference_update(read_body(record).reopened)
    return found


def _is_inner(record: Record) -> bool:
    return record.kind == Kind.NOTE and read_body(record).about in _INNER
