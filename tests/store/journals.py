"""Runs and records as an engine would write them, for tests that talk to a store directly."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from perdure.bodies import Done, Ended, Intended, Started, read_body, write_body
from perdure.records import Append, Kind, Mail, Record, Run, RunState, extended
from perdure.store import blobs
from perdure.store.debounce import Start
from perdure.store.protocol import Outcome, Store, Terms

AGENT = "shop:outreach"
TERMS = Terms(deliveries=3, stall_seconds=120.0)
QUIET_SECONDS = TERMS.stall_seconds - 5
"""A silence that is not over the limit yet, also by the clock of a server, which a test cannot stop."""
PARDON = Terms(deliveries=3, stall_seconds=120.0, pardon=True)


def new_run(run_id: str = "run-1", *, at: float = 100.0, **fields: Any) -> tuple[Run, Record]:
    """A run that was not created yet, and its first record."""
    agent = fields.pop("agent", AGENT)
    arguments = fields.pop("arguments", b"digest of the arguments")
    run = Run(run_id, fields.pop("name", f"name-of-{run_id}"), agent, arguments, "power", at, at, **fields)
    body = Started(agent=agent, arguments=Raw(b'{"customer":"ada"}'), code="v1")
    first = Record(0, Kind.STARTED, "", agent, arguments, at, 0, write_body(body))
    after, (record,) = extended(run, at=at, records=(first,))
    return after, record


def debounced(number: int, *, key: str = "ada", quiet: float = 3600.0, most: float = 36000.0, **fields: Any) -> Start:
    """The start with this number: its arguments say so."""
    run, first = new_run(f"draft-{number}", arguments=f"arguments {number}".encode(), **fields)
    body = msgspec.structs.replace(read_body(first), arguments=Raw(f'{{"number":{number}}}'.encode()))
    return Start(run, msgspec.structs.replace(first, body=write_body(body)), key, quiet, most)


def created(store: Store, run_id: str = "run-1", **fields: Any) -> Run:
    return store.create_run(*new_run(run_id, **fields))


def claimed(store: Store, run_id: str = "run-1", terms: Terms = TERMS) -> Run:
    return store.claim_run(run_id, store.join().worker_id, terms)


def held_run(store: Store, run_id: str = "run-1", **fields: Any) -> Run:
    created(store, run_id, **fields)
    return claimed(store, run_id)


def append(
    run: Run,
    kind: Kind,
    body: Struct,
    *,
    key: str = "",
    name: str = "",
    taken: tuple[int, ...] = (),
    stored: tuple[tuple[bytes, bytes], ...] = (),
    power: bool = True,
    **changes: Any,
) -> Append:
    """The append that extends this run by one record."""
    at = run.updated_at + 1
    record = Record(run.length, kind, key, name or run.agent, b"", at, run.epoch, write_body(body))
    after, records = extended(run, at=at, records=(record,), **changes)
    return Append(after, records, stored, taken, power)


def step(run: Run, value: str = "1", **options: Any) -> Append:
    """A completed step: it resets the count of deliveries."""
    body = Done(value=Raw(value.encode()), shown="search('ada')")
    changes: dict[str, Any] = {"deliveries": 0, "steps": run.steps + 1, **options}
    return append(run, Kind.STEP, body, key=f".{run.steps}", name="search", **changes)


def large_step(run: Run, content: bytes) -> Append:
    digest, stored = blobs.pack(content)
    changes: dict[str, Any] = {"deliveries": 0, "steps": run.steps + 1}
    body = Done(blob=digest.hex())
    return append(run, Kind.STEP, body, key=f".{run.steps}", name="fetch", stored=((digest, stored),), **changes)


def intent(run: Run, **options: Any) -> Append:
    body = Intended(effect_key="k" * 32, attempt=1, arguments=Raw(b"{}"), shown="send_email('ada')")
    return append(run, Kind.INTENT, body, key=f".{run.steps}", name="send_email", **options)


def ending(run: Run, state: RunState = RunState.COMPLETED, **options: Any) -> Append:
    return append(run, Kind.ENDED, Ended(state=state, value=Raw(b'"sent"')), state=state, holder="", **options)


def land(store: Store, first: Append, *others: Append) -> Run:
    """Append and require that everything landed; the run after the last."""
    assert store.append_all([first, *others], power=True) == [None] * (1 + len(others))
    return (others[-1] if others else first).run


def outcome_of(store: Store, one: Append) -> Outcome:
    (outcome,) = store.append_all([one], power=True)
    return outcome


def letter(run_id: str = "run-1", *, body: str = "{}", at: float = 200.0, by: str = "ada") -> Mail:
    return Mail(mail_id=0, run_id=run_id, kind="verdict", key=".0", body=body, by=by, at=at)


def rewritten(record: Record, **changes: Any) -> Record:
    return msgspec.structs.replace(record, **changes)
