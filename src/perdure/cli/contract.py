"""What `--json` promises: the objects that commands print, each field with its meaning.

The reference is generated from here. Fields are added, never renamed or taken away. Instants end in `_at` and are
seconds since 1970, UTC; 0 or null where there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from perdure.status import tags_of

if TYPE_CHECKING:
    from perdure.errors import PerdureError
    from perdure.records import Run
    from perdure.status import Status


class Mishap(Struct, frozen=True):
    """An error: with `--json` it is printed on standard output in place of what was asked for."""

    code: Annotated[str, Meta(description="the error's name, as in the reference of errors")]
    message: Annotated[str, Meta(description="what happened")]
    safe: Annotated[str, Meta(description="what is safe")]
    hint: Annotated[str, Meta(description="what to do")]
    exit_code: Annotated[int, Meta(description="the exit code of the command")]


class Refused(Struct, frozen=True):
    """What a command prints that failed."""

    error: Annotated[Mishap, Meta(description="what went wrong")]


class Progress(Struct, frozen=True):
    """How far an agent says it is."""

    done: Annotated[float, Meta(description="how much is done")]
    total: Annotated[float, Meta(description="of how much; 0 where it did not say")]
    text: Annotated[str, Meta(description="its own words")]


class RunObject(Struct, frozen=True):
    """A run: who it is, where it stands, and what to do next."""

    run_id: Annotated[str, Meta(description="the run's id")]
    name: Annotated[str, Meta(description="its readable name")]
    agent: Annotated[str, Meta(description="the agent's name")]
    state: Annotated[str, Meta(description="queued, running, waiting, completed, failed or cancelled")]
    reason: Annotated[str, Meta(description="why a waiting run waits: human, time, signal, child, in_doubt or parked")]
    cause: Annotated[str, Meta(description="why it is in that state, in words; empty where the state says it all")]
    next: Annotated[str, Meta(description="the command that takes it further; empty where none does")]
    steps: Annotated[int, Meta(description="how many steps are completed")]
    deliveries: Annotated[int, Meta(description="how many workers in a row were given it without a completed step")]
    created_at: Annotated[float, Meta(description="when it was accepted")]
    updated_at: Annotated[float, Meta(description="when its journal last grew")]
    tags: Annotated[dict[str, str], Meta(description="its tags")]
    progress: Annotated[Progress | None, Meta(description="the newest note of how far it is, or null")]
    queue: Annotated[str, Meta(description="the queue in which it waits for a worker, or did")]
    priority: Annotated[int, Meta(description="higher goes first")]
    tenant: Annotated[str, Meta(description="for whom it is, where tenants take turns")]
    wake_at: Annotated[float, Meta(description="when a delayed run may begin, or a waiting one looks again")]
    tokens: Annotated[int, Meta(description="tokens its steps say they took")]
    dollars: Annotated[float, Meta(description="dollars its steps say they took")]
    version: Annotated[str, Meta(description="the version of the code whose workers alone may take it; empty for any")]


def run_object(run: Run, status: Status) -> RunObject:
    """A run as programs get it."""
    note = status.progress
    return RunObject(
        run_id=run.run_id,
        name=run.name,
        agent=run.agent,
        state=status.state,
        reason=status.reason,
        cause=status.cause,
        next=status.next,
        steps=run.steps,
        deliveries=run.deliveries,
        created_at=run.created_at,
        updated_at=run.updated_at,
        tags=tags_of(run),
        progress=None if note is None else Progress(note.done, note.total, note.text),
        queue=run.queue,
        priority=run.priority,
        tenant=run.tenant,
        wake_at=run.wake_at,
        tokens=run.tokens,
        dollars=run.dollars,
        version=run.version,
    )


def refused(error: PerdureError) -> Refused:
    """An error as programs get it."""
    return Refused(Mishap(error.code, error.message, error.safe, error.hint, error.exit_code))
