"""What is left after a campaign, judged without perdure: the journals in the database, the outside's log, the bodies'
lines. Whatever contradicts a promise is a finding; everything else is counted.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.chaos.outside import read_log
from tests.chaos.shape import PLACES, kind_of, run_id_of

_RELEASED: Final = frozenset({"ended", "wait"})


@dataclass(frozen=True)
class Entry:
    """A record of a journal."""

    seq: int
    kind: str
    key: str
    at: float
    epoch: int
    body: dict[str, Any]


@dataclass(frozen=True)
class Story:
    """A run: how its row says that it stands, and its journal."""

    run_id: str
    state: str
    reason: str
    detail: str
    epoch: int
    length: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Interrupted:
    """A delivery that ended without its worker saying so, and when another took the run up."""

    worker: str
    run_id: str
    from_at: float
    to_at: float
    before: str


@dataclass
class Judgement:
    """What was found to be wrong, and what was counted."""

    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    interrupted: list[Interrupted] = field(default_factory=list)


def judge(connection: psycopg.Connection[Any], *, runs: int, executions: Path, outside: Path) -> Judgement:
    """Everything that can be known of a campaign whose workers have stopped."""
    found = Judgement()
    stories = list(read_stories(connection))
    by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in read_log(executions):
        by_run[line["run"]].append(line)
    heard: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in read_log(outside):
        heard[line["run"]].append(line)
    known = {story.run_id for story in stories}
    found.wrong += [f"{run_id_of(number)} is lost" for number in range(runs) if run_id_of(number) not in known]
    for story in stories:
        number = int(story.run_id.rpartition("-")[2])
        for fault in (
            *_wrong_ending(story, number),
            *_wrong_epochs(story),
            *_wrong_executions(story, by_run[story.run_id], found.counts),
            *_wrong_effects(story, heard[story.run_id], found.counts),
        ):
            found.wrong.append(f"{story.run_id}: {fault}")
        found.interrupted += _interruptions(story)
        found.counts["records"] += len(story.entries)
        found.counts["deliveries"] += sum(entry.kind == "delivery" for entry in story.entries)
    for each in found.interrupted:
        found.counts[f"taken over: {each.before.partition(' (')[0]}"] += 1
    found.counts["runs completed"] = sum(story.state == "completed" for story in stories)
    return found


def read_stories(connection: psycopg.Connection[Any]) -> Iterator[Story]:
    columns = "run, run_id, state, reason, detail, epoch, length"
    for run, *row in connection.execute(f"SELECT {columns} FROM perdure.runs ORDER BY run_id").fetchall():  # noqa: S608
        records = connection.execute(
            "SELECT seq, kind, key, at, epoch, body FROM perdure.records WHERE run = %s ORDER BY seq", (run,)
        )
        entries = tuple(
            Entry(seq, kind, key, at, epoch, json.loads(body or "{}"))
            for seq, kind, key, at, epoch, body in records.fetchall()
        )
        run_id, state, reason, detail, epoch, length = row
        yield Story(run_id, state, reason, detail, epoch, length, entries)


def _wrong_ending(story: Story, number: int) -> Iterator[str]:
    """It completed, and its result is made of what its journal says of every call, in order."""
    if story.state != "completed":
        yield f"is {story.state} ({story.reason}) {story.detail[:300]}"
        return
    values: dict[str, str] = {}
    for entry in story.entries:
        is_verdict = entry.kind == "verdict" and entry.body["outcome"] == "happened"
        if entry.kind in ("step", "receipt") or is_verdict:
            if entry.key in values and entry.kind == "step":
                yield f"completed {entry.key} twice"
            values.setdefault(entry.key, str(entry.body.get("value")))
    if len(values) != PLACES:
        yield f"has {len(values)} completed calls instead of {PLACES}"
    result = story.entries[-1].body.get("value")
    if story.entries[-1].kind != "ended" or result != " ".join(values.values()):
        yield f"ended with {result!r}, its journal says {' '.join(values.values())!r}"
    if sum(kind_of(number, place) == "step" for place in range(PLACES)) != sum("-" in each for each in values.values()):
        yield "has a step's value where an effect's should be"


def _wrong_epochs(story: Story) -> Iterator[str]:
    """No record is missing, none follows one of a newer epoch, and every delivery begins an epoch of its own."""
    newest = 0
    for place, entry in enumerate(story.entries):
        if entry.seq != place:
            yield f"record {place} is missing"
        if entry.epoch < newest:
            yield f"stale write: record {entry.seq} ({entry.kind}) of epoch {entry.epoch} after epoch {newest}"
        if entry.kind == "delivery" and entry.epoch <= newest:
            yield f"delivery at {entry.seq} does not begin a new epoch: {entry.epoch} after {newest}"
        newest = max(newest, entry.epoch)
    if newest != story.epoch or len(story.entries) != story.length:
        yield f"its row says epoch {story.epoch}, length {story.length}: {newest}, {len(story.entries)} are recorded"


def _wrong_executions(story: Story, lines: list[dict[str, Any]], counts: Counter[str]) -> Iterator[str]:
    """No body of a step ran in an epoch that began after its result was committed, nor again in the same one."""
    recorded = {
        str(entry.body["value"]): entry
        for entry in story.entries
        if entry.kind == "step" and entry.body.get("failure") is None
    }
    by_place = {token.partition("-")[0]: (token, entry) for token, entry in recorded.items()}
    ran: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        ran[str(line["place"])].append(line)
    for place, (token, entry) in by_place.items():
        executions = ran[place]
        counts["steps executed"] += len(executions)
        counts["steps executed again before their commit"] += len(executions) - 1
        if not any(line["token"] == token for line in executions):
            yield f"the value of step {place} was never computed: {token}"
        for line in executions:
            if line["token"] == token:
                continue
            if line["epoch"] >= entry.epoch:
                yield f"step {place}, committed in epoch {entry.epoch}, ran again in epoch {line['epoch']}"
            elif line["at"] > entry.at:
                counts["bodies begun by a fenced worker, refused"] += 1


def _wrong_effects(story: Story, heard: list[dict[str, Any]], counts: Counter[str]) -> Iterator[str]:
    """Every effect was done once, and the outside agrees with every receipt and every verdict."""
    done: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in heard:
        counts[f"outside: {line['what']}"] += 1
        if line["what"] == "done":
            done[line["key"]].append(line)
    key_of = {entry.key: entry.body["effect_key"] for entry in story.entries if entry.kind == "intent"}
    for key, lines in done.items():
        if len(lines) > 1:
            times = ", ".join(f"attempt {line['attempt']} of epoch {line['epoch']}" for line in lines)
            yield f"{lines[0]['kind']} effect at {lines[0]['place']} was done {len(lines)} times: {times}"
        if key not in key_of.values():
            yield f"the outside did what no intent announced: {lines[0]}"
    for entry in story.entries:
        counts["effects"] += entry.kind == "receipt"
        counts["attempts in doubt"] += (entry.kind == "intent") - (entry.kind == "receipt")
        if entry.kind in ("receipt", "verdict") and entry.key not in key_of:
            yield f"{entry.kind} at {entry.seq} without an intent"
        elif entry.kind == "receipt":
            yield from _wrong_receipt(entry, done[key_of[entry.key]])
        elif entry.kind == "verdict":
            counts[f"verdicts: {entry.body['outcome']} by {_whose(entry.body['by'])}"] += 1
            yield from _wrong_verdict(entry, done[key_of[entry.key]])


def _wrong_receipt(entry: Entry, lines: list[dict[str, Any]]) -> Iterator[str]:
    receipts = [line["receipt"] for line in lines]
    if entry.body.get("value") not in receipts:
        yield f"receipt {entry.body.get('value')!r} of {entry.key}, the outside knows {receipts}"


def _wrong_verdict(entry: Entry, lines: list[dict[str, Any]]) -> Iterator[str]:
    attempt, outcome = entry.body["attempt"], entry.body["outcome"]
    if outcome == "happened" and entry.body.get("value") not in [line["receipt"] for line in lines]:
        yield f"verdict happened ({entry.body.get('value')!r}) on {entry.key}, the outside knows {lines}"
    if outcome == "did_not_happen" and any(line["attempt"] <= attempt for line in lines):
        yield f"verdict did_not_happen on attempt {attempt} of {entry.key}, the outside did {lines}"


def _whose(by: str) -> str:
    return "evidence" if by.startswith("worker ") else by


def _interruptions(story: Story) -> Iterable[Interrupted]:
    """Deliveries after which the next record that is not their worker's is another delivery."""
    held: Entry | None = None
    for entry in story.entries:
        if entry.kind == "delivery":
            if held is not None:
                before = str(entry.body.get("before", ""))
                yield Interrupted(str(held.body["worker"]), story.run_id, held.at, entry.at, before)
            held = entry
        elif entry.kind in _RELEASED:
            held = None
