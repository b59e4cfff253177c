"""The checkpoint document: one JSON object with all that is needed to act on a run, as of now or of an earlier step.

Its fields are a contract, documented in docs/reference/checkpoint.md and checked against
docs/reference/checkpoint.schema.json. It is made from the store alone: nothing is changed, and no code of the user's is
loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure import clock
from perdure.bodies import read_body
from perdure.checkpoint.parts import FORMAT, SMALL_BYTES, Checkpoint, EffectsPart, ResourcePart
from perdure.checkpoint.view import View
from perdure.engine.ledger import resource_of
from perdure.engine.prefix import cut, steps_in, working_state
from perdure.engine.whereabouts import of_one_moment
from perdure.status import Commands

if TYPE_CHECKING:
    from msgspec import Raw

    from perdure.bodies import Kept, Tracked
    from perdure.records import Record, Run
    from perdure.store.protocol import Store

__all__ = ["FORMAT", "SMALL_BYTES", "Checkpoint", "document"]


def document(store: Store, run: Run, *, commands: Commands | None = None, at_step: int | None = None) -> Checkpoint:
    """The checkpoint of a run as it stands, or as it was right after its N-th completed step (0: as accepted)."""
    commands = commands or Commands()
    run, records = of_one_moment(store, run)
    known = records if at_step is None else records[: cut(records, at_step, of=run.name)]
    view = View(store, run, known, records[len(known) :], commands, is_past=at_step is not None)
    state = working_state(known)
    progress = view.progress()
    arguments = view.journal.started().arguments
    status = view.status
    return Checkpoint(
        format=FORMAT,
        made_at=clock.wall_seconds(),
        at_step=at_step,
        store=store.location,
        run=view.run_part(),
        goal=_goal(state, arguments),
        arguments=arguments,
        step=steps_in(known),
        total=progress.total if progress else None,
        progress=progress,
        position=view.position(),
        working_state=state,
        resources=_resources(known),
        artifacts=_artifacts(known),
        pending=view.pending(),
        effects=EffectsPart(view.done_effects(), view.in_doubt()),
        waits=view.waits(),
        holder=view.holder(),
        errors=view.errors(),
        next=(status.next or None) if status else None,
    )


def _goal(state: dict[str, Raw], arguments: Raw) -> str | None:
    """What the run is for: its working state's `goal`, else its first argument that is a text."""
    goal = msgspec.json.decode(bytes(state["goal"])) if "goal" in state else None
    if goal is not None:
        return goal if isinstance(goal, str) else msgspec.json.encode(goal).decode()
    values = msgspec.json.decode(bytes(arguments))
    texts = values.values() if isinstance(values, dict) else ()
    return next((value for value in texts if isinstance(value, str)), None)


def _resources(records: list[Record]) -> list[ResourcePart]:
    """The last look at each resource."""
    seen: dict[str, tuple[Tracked, float]] = {}
    for record in records:
        if '"resources":[' in record.body:
            for tracked in getattr(read_body(record), "resources", ()):
                key = resource_of(tracked).key
                if key not in seen or seen[key][0].look <= tracked.look:
                    seen[key] = (tracked, record.at)
    return [
        ResourcePart(
            tracked.kind,
            tracked.identity,
            resource_of(tracked).words,
            tracked.state,
            tracked.digest,
            tracked.options,
            tracked.on_change,
            tracked.kept,
            at,
        )
        for tracked, at in seen.values()
    ]


def _artifacts(records: list[Record]) -> list[Kept]:
    """The files whose content is kept, oldest first."""
    naming = [record for record in records if '"artifacts":[' in record.body]
    return [kept for record in naming for kept in getattr(read_body(record), "artifacts", ())]
