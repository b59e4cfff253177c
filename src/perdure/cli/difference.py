"""How two checkpoints, or two runs, differ: in arguments, steps, results, working state and outcome. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from perdure.bodies import Done, Ended, Settled, read_body
from perdure.cli.contract import RunObject
from perdure.cli.wording import error_words
from perdure.engine.prefix import completes, working_state
from perdure.records import Kind, Record, Run
from perdure.replay import Entry, Journal
from perdure.status import numbers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOTHING: Final = Raw(b"null")


class Side(Struct, frozen=True):
    """One of the two that are compared."""

    run: Annotated[RunObject, Meta(description="the run")]
    at: Annotated[int | None, Meta(description="after how many completed steps; null for all there are")]
    fork_of: Annotated[str, Meta(description="where it comes from, in words; empty where it is no fork")] = ""


class ChangeObject(Struct, frozen=True):
    """Something that has another value, or that only one of the two has."""

    name: Annotated[str, Meta(description="what it is called")]
    change: Annotated[Literal["added", "changed", "removed"], Meta(description="how it differs")]
    before: Annotated[Raw, Meta(description="the first one's value; null where it has none")] = NOTHING
    after: Annotated[Raw, Meta(description="the second one's value; null where it has none")] = NOTHING


class CompletedStep(Struct, frozen=True):
    """A completed step between two checkpoints of one run."""

    number: Annotated[int, Meta(description="the number of the step")]
    call: Annotated[str, Meta(description="the call, as a person would write it")]
    kind: Annotated[str, Meta(description="step, effect or wait")]
    result: Annotated[Raw, Meta(description="what it returned; null where it failed")]
    error: Annotated[str, Meta(description="how it failed; empty where it did not")]


class ResultObject(Struct, frozen=True):
    """The same call, which ended differently in the two runs."""

    number: Annotated[int, Meta(description="the number of the step in the first run")]
    call: Annotated[str, Meta(description="the call, as a person would write it")]
    before: Annotated[Raw, Meta(description="its result in the first run, or its error as a text")]
    after: Annotated[Raw, Meta(description="its result in the second run, or its error as a text")]


class Parting(Struct, frozen=True):
    """The first step that is not the same call in both runs."""

    number: Annotated[int, Meta(description="the number of the step")]
    before: Annotated[str, Meta(description="the first run's call there; empty where it has none")]
    after: Annotated[str, Meta(description="the second run's call there; empty where it has none")]


class Difference(Struct, frozen=True):
    """How two checkpoints of a run, or two runs, differ."""

    before: Annotated[Side, Meta(description="the first")]
    after: Annotated[Side, Meta(description="the second")]
    state: Annotated[list[ChangeObject], Meta(description="how the working state differs")]
    arguments: Annotated[list[ChangeObject], Meta(description="of two runs: how the arguments differ")] = []
    equal: Annotated[int, Meta(description="of two runs: how many steps are the same call with the same result")] = 0
    results: Annotated[list[ResultObject], Meta(description="of two runs: equal calls that ended differently")] = []
    parting: Annotated[Parting | None, Meta(description="of two runs: the first step that differs; else null")] = None
    outcome: Annotated[list[ChangeObject], Meta(description="of two runs: how outcome, cost and time differ")] = []
    steps: Annotated[list[CompletedStep], Meta(description="of two checkpoints: the steps between them")] = []


def changes(before: Mapping[str, Raw], after: Mapping[str, Raw]) -> list[ChangeObject]:
    """What was added, changed and removed, by name."""
    found = []
    for name in sorted({*before, *after}):
        if name not in before:
            found.append(ChangeObject(name, "added", after=after[name]))
        elif name not in after:
            found.append(ChangeObject(name, "removed", before=before[name]))
        elif not _are_equal(before[name], after[name]):
            found.append(ChangeObject(name, "changed", before[name], after[name]))
    return found


def state_changes(before: Sequence[Record], after: Sequence[Record]) -> list[ChangeObject]:
    """How the working state differs between two journals, or two beginnings of one."""
    return changes(working_state(before), working_state(after))


def steps_between(records: Sequence[Record], first: int, last: int) -> list[CompletedStep]:
    """The steps that completed between two positions in a journal."""
    journal = Journal(records)
    numbers = numbers_of(journal)
    found = []
    for record in records[first:last]:
        if completes(record):
            entry = journal.entries[record.key]
            result, error = _outcome(read_body(record))
            found.append(CompletedStep(numbers[record.key], entry.shown_call(), entry.kind, result, error))
    return found


def compared(before: Sequence[Record], after: Sequence[Record]) -> tuple[int, list[ResultObject], Parting | None]:
    """How many steps are equal, which equal calls ended differently, and where the runs part."""
    one, other = Journal(before), Journal(after)
    numbers = numbers_of(one)
    equal, results = 0, []
    for key, entry in one.entries.items():
        twin = other.entries.get(key)
        if twin is None or not _is_same_call(entry, twin):
            continue
        mine, its = _ended(entry), _ended(twin)
        if mine is None or its is None or _are_equal(mine, its):
            equal += mine is not None and its is not None
        else:
            results.append(ResultObject(numbers[key], entry.shown_call(), mine, its))
    return equal, results, _parting(one, other)


def _parting(one: Journal, other: Journal) -> Parting | None:
    """The earliest place, by its number in the run that comes to it first, that the two do not share."""
    places = []
    for mine, its in ((one, other), (other, one)):
        for number, (key, entry) in enumerate(mine.entries.items(), 1):
            twin = its.entries.get(key)
            if twin is None or not _is_same_call(entry, twin):
                places.append((number, key))
                break
    if not places:
        return None
    number, key = min(places)
    mine_entry, its_entry = one.entries.get(key), other.entries.get(key)
    return Parting(
        number,
        mine_entry.shown_call() if mine_entry is not None else "",
        its_entry.shown_call() if its_entry is not None else "",
    )


def outcome_changes(before: tuple[Run, Sequence[Record]], after: tuple[Run, Sequence[Record]]) -> list[ChangeObject]:
    """How the ends of two runs differ: state, result or error, cost, time."""
    return changes(_facts(*before), _facts(*after))


def _facts(run: Run, records: Sequence[Record]) -> dict[str, Raw]:
    ended = read_body(records[-1]) if records[-1].kind == Kind.ENDED else None
    facts: dict[str, object] = {
        "state": f"{run.state} ({run.reason})" if run.reason else run.state,
        "steps": run.steps,
        "seconds": round(run.updated_at - run.created_at, 1),
    }
    facts |= {name: value for name, value in (("dollars", run.dollars), ("tokens", run.tokens)) if value}
    if isinstance(ended, Ended):
        result, error = _outcome(Done(value=ended.value, blob=ended.blob, failure=ended.failure))
        facts |= {"error": error} if error else {}
        facts |= {"result": result} if not error and ended.state == "completed" else {}
    return {name: value if isinstance(value, Raw) else Raw(msgspec.json.encode(value)) for name, value in facts.items()}


def _is_same_call(entry: Entry, twin: Entry) -> bool:
    return (entry.kind, entry.name, entry.arguments) == (twin.kind, twin.name, twin.arguments)


def _ended(entry: Entry) -> Raw | None:
    """How a call ended: its result, or its error as a text; None where it has not."""
    body: Done | Settled | None = entry.done or entry.verdict
    if body is None:
        return None
    result, error = _outcome(body)
    return Raw(msgspec.json.encode(error)) if error else result


def _outcome(body: Done | Settled) -> tuple[Raw, str]:
    """The result, by its digest where it is large; or the failure in words."""
    failure = getattr(body, "failure", None)
    if failure is not None:
        return NOTHING, error_words(failure)
    if isinstance(body, Settled) and body.outcome != "happened":
        return NOTHING, f"settled as failed by {body.by}"
    return (Raw(msgspec.json.encode({"digest": body.blob})), "") if body.blob else (body.value, "")


def _are_equal(one: Raw, other: Raw) -> bool:
    """Whether two values are the same JSON, however it is written."""
    if bytes(one) == bytes(other):
        return True
    return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
