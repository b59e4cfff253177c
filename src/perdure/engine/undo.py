"""Taking effects back: those with an `undo` are undone, newest first, and each undoing is an effect itself.

A run that fails with `undo_on_failure` does so as its last act. The journal of one that has ended is not extended any
more: its effects are taken back by a run of its own, which `engine/undoing.py` makes from the plan that is drawn here.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure import codec
from perdure.bodies import Done, Intended, Settled, read_body
from perdure.engine.call import Prepared
from perdure.engine.effect import EffectSpec, effect_flow
from perdure.engine.scope import Frame, Scope
from perdure.records import Kind, Record, Run
from perdure.replay import Entry, Journal, Replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from perdure.engine.active import Active
    from perdure.engine.drive import Operation

    Load = Callable[[bytes], bytes]

_SCOPE: Final = "undo"

NO_CODE: Final = "its code is not there"
"""Why an effect is left whose undo may be known elsewhere."""


class Effect(Struct, frozen=True):
    """An effect of a run that has ended."""

    number: int
    key: str
    name: str
    shown: str


class Undoing(Effect, frozen=True):
    """An effect that can be taken back, and what its undo is called with."""

    spec: EffectSpec
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Left(Effect, frozen=True):
    """An effect that is not taken back, and why."""

    why: str


class Plan(Struct, frozen=True):
    """What taking a run's effects back means; what is to be undone first comes first."""

    run: Run
    undoings: tuple[Undoing, ...] = ()
    left: tuple[Left, ...] = ()
    undone: tuple[Effect, ...] = ()
    """What was taken back before: by the run itself when it failed, or by an undo that was cancelled."""


def undo_flow(active: Active) -> Generator[Operation, Any, int]:
    """Undo what this execution's effects did; how many were taken back."""
    count = 0
    for prepared, value in reversed(list(active.undoable)):
        yield from undone(active, prepared.spec, prepared.call.key, (value, *prepared.args), prepared.kwargs)
        count += 1
    return count


def undone(
    active: Active, spec: EffectSpec, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Generator[Operation, Any, Any]:
    """Take one effect back, once."""
    undoing = Prepared(spec.inverse(key), Frame(active, Scope(_SCOPE)), args, kwargs)
    if isinstance(undoing.decision, Replayed):
        return undoing.recorded(undoing.decision.done)
    return (yield from effect_flow(undoing))


def undoing_keys(journal: Journal) -> dict[str, str]:
    """The key of each effect, by the key under which its undoing is recorded."""
    effects = ((key, entry) for key, entry in journal.entries.items() if entry.kind == "effect")
    return {f"=undo {entry.name}:{key}": key for key, entry in effects}


def effects_of(run: Run, records: Sequence[Record], *, earlier: Sequence[Journal] = ()) -> Plan:
    """The effects of a run: those taken back before, those that nobody can, and the others, as yet without a way."""
    return planned(run, records, {}, load=_nothing, earlier=earlier)


def planned(
    run: Run,
    records: Sequence[Record],
    specs: Mapping[str, EffectSpec],
    *,
    load: Load,
    earlier: Sequence[Journal] = (),
) -> Plan:
    """How to take the effects of a run back, with the effects that the code at hand has, by name.

    `earlier` are the journals of those that were to do so and were cancelled: what they took back stays so.
    """
    journal = Journal(records)
    numbers = {key: number for number, key in enumerate(journal.entries, 1)}
    takings_back = undoing_keys(journal)
    intents = {record.key: read_body(record) for record in records if record.kind == Kind.INTENT}
    completed = {record.key: record.seq for record in records if record.kind in (Kind.RECEIPT, Kind.VERDICT)}
    undoings, left, done = [], [], []
    for key in sorted(journal.entries, key=lambda key: -completed.get(key, len(records))):
        entry = journal.entries[key]
        if entry.kind != "effect" or key in takings_back or not (entry.is_open or _happened(entry)):
            continue
        taken_back = _taken_back(f"=undo {entry.name}:{key}", (journal, *earlier))
        effect = Effect(numbers[key], key, entry.name, entry.shown_call())
        if taken_back is not None and _happened(taken_back):
            done.append(effect)
            continue
        why = _obstacle(journal, key, entry, taken_back, completed)
        found = why or _undoing(effect, entry, intents.get(key), specs.get(entry.name), load)
        if isinstance(found, str):
            left.append(Left(effect.number, effect.key, effect.name, effect.shown, found))
        else:
            undoings.append(found)
    return Plan(run, tuple(undoings), tuple(left), tuple(done))


def _taken_back(key: str, journals: Sequence[Journal]) -> Entry | None:
    """What is on record of the undoing with this key: that it happened, or else that it may have."""
    found = [entry for journal in journals if (entry := journal.entries.get(key)) is not None]
    certain = [entry for entry in found if _happened(entry)]
    possible = [entry for entry in found if entry.is_open]
    return next(iter((*certain, *possible)), None)


def _happened(entry: Entry) -> bool:
    if entry.verdict is not None:
        return entry.verdict.outcome == "happened"
    return entry.completion is not None and read_body(entry.completion).failure is None


def _obstacle(journal: Journal, key: str, entry: Entry, taken_back: Entry | None, completed: Mapping[str, int]) -> str:
    """Why nobody can take this effect back here, whatever the code says."""
    origin = journal.started().forked_from
    if origin is not None and (key in origin.keys or completed.get(key, origin.records) < origin.records):
        return f"it is an effect of {origin.name}, of which this run is a fork"
    if entry.is_open:
        return "it is in doubt: nobody has said whether it happened"
    if taken_back is not None and taken_back.is_open:
        return "it is in doubt whether it was taken back before"
    return ""


def _undoing(
    effect: Effect, entry: Entry, intent: Intended | None, spec: EffectSpec | None, load: Load
) -> Undoing | str:
    """The call that takes it back; else why there is none."""
    if intent is None:
        return "its arguments are not on record"
    if spec is None:
        return NO_CODE
    if spec.undo is None:
        return "it has no undo"
    done: Done | Settled | None = entry.verdict or entry.done
    if done is None:
        raise TypeError(entry)
    try:
        arguments = codec.unseal_arguments(_sealed(intent.arguments, intent.blob, load), spec.signature.parameters)
        value = codec.unseal(_sealed(done.value, done.blob, load), spec.signature.returns)
        args, kwargs = _fitting(spec, arguments, value)
    except (ValueError, TypeError) as error:
        return f"what is recorded of it does not fit its code any more: {error}"
    return Undoing(effect.number, effect.key, effect.name, effect.shown, spec, args, kwargs)


def _sealed(value: Any, blob: str, load: Load) -> bytes:
    return load(bytes.fromhex(blob)) if blob else bytes(value)


def _fitting(spec: EffectSpec, arguments: dict[str, Any], value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The result and the arguments as the undo takes them; those that were left to their defaults it need not know."""
    undo = inspect.signature(spec.undo or spec.function)
    bound = spec.signature.call(arguments)
    try:
        undo.bind(value, *bound.args, **bound.kwargs)
    except TypeError:
        parameters = inspect.signature(spec.function).parameters
        given = {name: each for name, each in arguments.items() if parameters[name].default != each}
        bound = spec.signature.call(given)
        undo.bind(value, *bound.args, **bound.kwargs)
    return (value, *bound.args), bound.kwargs


def _nothing(digest: bytes) -> bytes:
    raise ValueError(digest.hex())
