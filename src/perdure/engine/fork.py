"""Forks: a new run that has another run's journal up to its N-th completed step, and goes on by itself from there.

What was completed before the cut stays completed, and stays the other run's: the fork never takes it back. An effect
that was in doubt there is in doubt in the fork too, under the same key; so is one that began after the last completed
step, where the fork has all of them. What else came after the cut is performed again, under new keys. A wait that was
open at the cut is begun anew, so a question is asked by the fork itself; so is an approval of an effect that had not
happened by then, because it lets the effect happen once. The other run is only read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from perdure import clock, codec
from perdure.bodies import Change, Cost, Done, Intended, Opened, Origin, Started, added, read_body, write_body
from perdure.engine.active import APPROVAL, made_key
from perdure.engine.approval import DENY
from perdure.engine.names import new_name, new_run_id
from perdure.engine.prefix import completes, cut, steps_in
from perdure.engine.signature import shown_call
from perdure.engine.undo import undoing_keys
from perdure.engine.whereabouts import UNDO_AGENT, of_one_moment
from perdure.errors import UsageError
from perdure.records import Kind, Record, Run, extended
from perdure.replay import Entry, Journal
from perdure.resources.kinds import Resource
from perdure.store.moving import refuse_moving

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.store.protocol import Store

_WORKDIR: Final = "perdure.workdir"


class Repeated(Struct, frozen=True):
    """Something the other run did after the cut, which the fork will do again."""

    number: int
    name: str
    shown: str
    kind: str
    """An effect, or a run that it starts."""


class Fork(Struct, frozen=True):
    """A fork that is not accepted yet, and what it means."""

    run: Run
    records: tuple[Record, ...]
    original: Run
    origin: Origin
    steps: int
    """How many steps the other run had completed by now."""
    repeated: tuple[Repeated, ...]
    in_doubt: tuple[str, ...]
    asked_anew: tuple[str, ...]
    restored: tuple[str, ...]
    """Places outside that both runs use, and that the fork puts back to what they were at the cut."""


def planned(store: Store, run: Run, *, at: int | None, given: Mapping[str, Raw], stall_seconds: float) -> Fork:
    """A fork of this run after so many of its completed steps, or after all; `given` replaces arguments or state."""
    if run.agent == UNDO_AGENT:
        raise UsageError(
            f"Run {run.name} takes back what another run did, which is done once.",
            safe="nothing was forked.",
            hint=f"perdure show {run.name}",
        )
    original, records = of_one_moment(store, run)
    refuse_moving(original)  # what it does elsewhere is not known here, and would be done again
    steps = steps_in(records)
    at = steps if at is None else at
    whole, position = Journal(records), cut(records, at, of=original.name)
    doubts = {key for key, _ in whole.open_entries()} if at == steps else set()
    kept = [record for record in records if record.seq < position or record.key in doubts]
    later = [record for record in records if not (record.seq < position or record.key in doubts)]
    before = Journal(kept)
    if store.is_running(original, stall_seconds=stall_seconds):
        _refuse_in_flight(original, before, whole)
    run_id, name = new_run_id(), new_name()
    unused = _unused_approvals(before)
    inherited = _inherited(kept[1:], before, original, name, without=unused)
    last = next((record.key for record in reversed(inherited) if completes(record)), "")
    origin = _origin(original, before, kept, at=at, last=last, given=given, records=1 + len(inherited))
    row, first = _first(original, whole.started(), origin, given, run_id=run_id, name=name)
    cost = _cost(inherited)
    after, chained = extended(
        msgspec.structs.replace(
            row, epoch=max(record.epoch for record in kept), suspects=original.suspects + _lost(later)
        ),
        at=row.created_at,
        records=(first, *_numbered(inherited)),
        steps=at - len(unused),
        tokens=cost.tokens,
        dollars=cost.dollars,
    )
    return Fork(
        run=after,
        records=chained,
        original=original,
        origin=origin,
        steps=steps,
        repeated=_repeated(before, whole, later),
        in_doubt=tuple(entry.shown_call() for _, entry in before.open_entries()),
        asked_anew=_asked_anew(whole if at == steps else before, unused),
        restored=_restored(kept),
    )


def accept(store: Store, fork: Fork) -> Run:
    """Accept the fork: its whole journal is committed at once, so there is one fork or none."""
    store.join()
    return store.create_run(fork.run, fork.records[0], claimed=fork.records[1:])


def _refuse_in_flight(original: Run, before: Journal, whole: Journal) -> None:
    """An effect that a live process performs right now is neither done nor in doubt: nothing can be inherited of it."""
    for key, entry in before.open_entries():
        now = whole.entries[key]
        if now.is_open and not now.doubt:
            raise UsageError(
                f"Run {original.name} is performing {entry.shown_call()} right now.",
                safe="nothing was forked.",
                hint="wait until it is confirmed, or fork before it: a smaller --at",
            )


def _inherited(
    records: Sequence[Record], before: Journal, original: Run, name: str, *, without: Mapping[str, Entry]
) -> list[Record]:
    """The records of the other run that the fork begins with; waits that were open are left out, to be begun anew."""
    kept = [
        record
        for record in records
        if record.key not in without and (record.kind != Kind.WAIT or before.entries[record.key].completion is not None)
    ]
    return [_moved(record, original.name, name) for record in kept]


def _unused_approvals(before: Journal) -> dict[str, Entry]:
    """The approvals, by key, of effects that had not happened by the cut: the other run may still use them."""
    found = {}
    for key, entry in before.entries.items():
        approves = key.removesuffix(APPROVAL)
        effect = before.entries.get(approves)
        is_used = effect is not None and not effect.is_open and has_happened(effect)
        if approves != key and entry.completion is not None and not is_used and not _is_denied(entry):
            found[key] = entry
    return found


def _is_denied(entry: Entry) -> bool:
    """Whether somebody said no, which lets nothing happen, and stands."""
    value = msgspec.json.decode(bytes(entry.done.value)) if entry.done is not None else None
    return isinstance(value, dict) and value.get("choice") == DENY


def _moved(record: Record, before: str, name: str) -> Record:
    """The record, with the other run's own working directory named as the fork's own, which begins as a copy."""
    if '"resources":[' not in record.body:
        return record
    body = read_body(record)
    resources = tuple(
        msgspec.structs.replace(tracked, identity=name)
        if (tracked.kind, tracked.identity) == ("workdir", before)
        else tracked
        for tracked in body.resources
    )
    changes: dict[str, object] = {"resources": resources}
    arguments = record.arguments
    if record.name == _WORKDIR and arguments == _workdir_digest(before):
        arguments, changes["shown"] = _workdir_digest(name), shown_call(_WORKDIR, _workdir_arguments(name))
    written = write_body(msgspec.structs.replace(body, **changes))
    return msgspec.structs.replace(record, arguments=arguments, body=written)


def _workdir_arguments(name: str) -> dict[str, object]:
    return {"directory": Resource("workdir", name).words}


def _workdir_digest(name: str) -> bytes:
    return codec.digest_arguments(_workdir_arguments(name), of=_WORKDIR)


def _numbered(records: Sequence[Record]) -> list[Record]:
    return [msgspec.structs.replace(record, seq=number) for number, record in enumerate(records, 1)]


def _origin(
    original: Run,
    before: Journal,
    kept: Sequence[Record],
    *,
    at: int,
    last: str,
    given: Mapping[str, Raw],
    records: int,
) -> Origin:
    started = before.started()
    known = arguments_of(started)
    state = {name: value for name, value in given.items() if name not in known}
    done = {record.key for record in kept if completes(record)} | {""}
    earlier = started.forked_from.changes if started.forked_from is not None else ()
    changes = [change for change in earlier if change.after in done]
    if state:
        changes.append(Change(state=state, after=last))
    return Origin(
        run_id=original.run_id,
        name=original.name,
        at=at,
        records=records,
        keys=_keys(original, before),
        changes=tuple(changes),
        arguments=tuple(name for name in given if name in known),
    )


def arguments_of(started: Started) -> dict[str, Raw]:
    """The arguments of a run, each as it is stored."""
    return msgspec.json.decode(bytes(started.arguments), type=dict[str, Raw])


def _keys(original: Run, before: Journal) -> dict[str, str]:
    """The keys under which the outside may know what was in doubt."""
    origin = before.started().forked_from
    earlier = origin.keys if origin is not None else {}
    found = {}
    for key, entry in before.open_entries():
        body = read_body(entry.intent) if entry.intent is not None else None
        made = earlier.get(key) or made_key(original.run_id, key)
        found[key] = body.effect_key if isinstance(body, Intended) else made
    return found


def _first(
    original: Run, started: Started, origin: Origin, given: Mapping[str, Raw], *, run_id: str, name: str
) -> tuple[Run, Record]:
    """The row and the first record: what was asked for, with other arguments where some were given."""
    now = clock.wall_seconds()
    arguments, digest = started.arguments, original.arguments
    if origin.arguments:
        changed = arguments_of(started) | {each: given[each] for each in origin.arguments}
        arguments = Raw(msgspec.json.encode(changed))
        digest = codec.digest_arguments(codec.unseal_arguments(bytes(arguments), {}), of=original.agent)
    limit = started.deadline_at and started.deadline_at - original.created_at
    body = msgspec.structs.replace(
        started,
        arguments=arguments,
        lineage=(),
        deadline_at=now + limit if limit else 0.0,
        forked_from=origin,
    )
    row = Run(
        run_id,
        name,
        original.agent,
        digest,
        original.durability,
        now,
        now,
        tags=original.tags,
        queue=original.queue,
        priority=original.priority,
        tenant=original.tenant,
    )
    return row, Record(0, Kind.STARTED, "", original.agent, digest, now, 0, write_body(body))


def _cost(records: Sequence[Record]) -> Cost:
    total = Cost()
    for record in records:
        cost = getattr(read_body(record), "cost", None) if '"cost":' in record.body else None
        total = added(total, cost) if cost is not None else total
    return total


def _lost(later: Sequence[Record]) -> int:
    """How many effects after the cut were found to be among records that were lost: the fork has yet to find them."""
    return sum(record.kind == Kind.DOUBT and read_body(record).lost for record in later)


def _repeated(before: Journal, whole: Journal, later: Sequence[Record]) -> tuple[Repeated, ...]:
    """The effects that took place after the cut, or may have, and the runs that were started there."""
    takings_back = undoing_keys(whole)
    numbers = {key: number for number, key in enumerate(whole.entries, 1)}
    begun = dict.fromkeys(record.key for record in later if record.kind in (Kind.INTENT, Kind.WAIT))
    begun |= {key: None for key, entry in before.entries.items() if entry.is_waiting}
    found = []
    for key in sorted(begun, key=numbers.__getitem__):
        entry = whole.entries[key]
        is_known = key in before.entries and (before.entries[key].completion or before.entries[key].is_open)
        kind = "run" if _is_child(entry) else "effect" if entry.kind == "effect" and has_happened(entry) else ""
        if kind and not is_known and key not in takings_back:
            found.append(Repeated(numbers[key], entry.name, entry.shown_call(), kind))
    return tuple(found)


def has_happened(entry: Entry) -> bool:
    """Whether an effect took place, or may have."""
    done: Done | None = entry.done
    if entry.verdict is not None:  # one that let the run fail does not say that it did not
        return True
    return entry.is_open or (done is not None and done.failure is None)


def _is_child(entry: Entry) -> bool:
    opened: Opened | None = read_body(entry.wait) if entry.wait is not None else None
    return opened is not None and bool(opened.child)


def _asked_anew(before: Journal, unused: Mapping[str, Entry]) -> tuple[str, ...]:
    waiting = [entry.wait for key, entry in before.entries.items() if entry.is_waiting or key in unused]
    opened = [read_body(wait) for wait in waiting if wait is not None]
    return tuple(wait.question.text for wait in opened if wait.question is not None)


def _restored(kept: Sequence[Record]) -> tuple[str, ...]:
    """What both runs look at and a resume puts back; the run's own working directory is copied instead."""
    found: dict[str, str] = {}
    for record in kept:
        for tracked in getattr(read_body(record), "resources", ()) if '"resources":[' in record.body else ():
            found.pop(tracked.identity, None)
            if tracked.on_change == "recreate" and tracked.kind != "workdir":
                found[tracked.identity] = Resource(tracked.kind, tracked.identity, tracked.options).words
    return tuple(found.values())
