"""Writing to a run what somebody found out about an effect in doubt."""

from __future__ import annotations

import json
from typing import Any, Literal

from perdure import clock
from perdure.bodies import read_body
from perdure.engine.session import session
from perdure.records import Kind, Mail
from perdure.replay import Journal
from tests.engine.journals import records_of

Outcome = Literal["happened", "did_not_happen", "fail"]


def post(
    run_id: str,
    outcome: Outcome,
    value: Any = None,
    *,
    name: str = "send",
    attempt: int | None = None,
    kind: Literal["verdict", "evidence"] = "verdict",
) -> None:
    """Tell the run what became of the effect of this name that is in doubt: of its newest attempt, or the one named."""
    entries = Journal(records_of(run_id)).open_entries()
    key, entry = next((key, entry) for key, entry in entries if entry.name == name)
    body = {"attempt": entry.attempts if attempt is None else attempt, "outcome": outcome, "value": value}
    mail = Mail(0, run_id, kind, key, json.dumps(body), "ada", clock.wall_seconds())
    session().store.post(mail)


def open_effects(run_id: str) -> list[str]:
    """The names of the effects in doubt."""
    return [entry.name for _, entry in Journal(records_of(run_id)).open_entries()]


def verdicts(run_id: str) -> list[tuple[str, str]]:
    """Outcome and author of every verdict in the journal."""
    found = [read_body(record) for record in records_of(run_id, Kind.VERDICT)]
    return [(verdict.outcome, verdict.by) for verdict in found]
