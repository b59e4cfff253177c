"""What the checkpoint document consists of: its fields are a contract, in the words of docs/reference/checkpoint.md."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from perdure.bodies import Kept
from perdure.records import RunState, WaitReason

FORMAT: Final = 1
"""Raised when a field is removed, renamed or changes its meaning; not when one is added."""

SMALL_BYTES: Final = 1000
"""Up to this size a recorded result is part of the document; of a larger one its digest is."""


class Ref(Struct, frozen=True):
    """Another run."""

    run_id: str
    name: str
    agent: str
    state: RunState
    reason: WaitReason | None


class RunPart(Struct, frozen=True):
    """Which run this is, and where it stands."""

    run_id: str
    name: str
    agent: str
    state: RunState
    reason: WaitReason | None
    cause: str | None
    created_at: float
    updated_at: float
    deadline_at: float | None
    deliveries: int
    durability: str
    tags: dict[str, str]
    parent: Ref | None
    continued_as: Ref | None


class ProgressPart(Struct, frozen=True):
    """How far the agent itself says it is."""

    done: float
    total: float | None
    text: str
    at: float


class StepPart(Struct, frozen=True):
    """One step, by its place in the run."""

    number: int
    key: str
    name: str
    kind: Literal["step", "effect", "wait"]
    call: str


class LastPart(StepPart, frozen=True):
    """The step that completed last."""

    at: float
    failed: bool


class Position(Struct, frozen=True):
    """Between which steps the run stands."""

    last: LastPart | None
    next: StepPart | None


class ResourcePart(Struct, frozen=True):
    """Something outside that the run relies on, as it was when last looked at."""

    kind: str
    identity: str
    words: str
    state: str
    digest: str
    options: dict[str, Any]
    on_change: str
    kept: bool
    seen_at: float


class PendingPart(StepPart, frozen=True):
    """A call that began and has not completed."""

    status: Literal["performing", "retrying", "advancing", "again"]
    attempt: int
    next_at: float | None
    items_done: int | None
    error: str | None


class ResultPart(Struct, frozen=True):
    """A recorded value: itself where it is small, and always its digest."""

    digest: str
    value: Raw | UnsetType = UNSET


class EffectPart(StepPart, frozen=True):
    """An effect that is over: performed, settled, or proved not to have happened."""

    effect_key: str | None
    attempt: int
    at: float
    result: ResultPart | None
    error: str | None
    verdict_by: str | None


class DoubtPart(StepPart, frozen=True):
    """An effect that was started and never confirmed."""

    effect_key: str | None
    attempt: int
    started_at: float
    why: str
    verdict: str | None
    verdict_by: str | None
    settle: str


class EffectsPart(Struct, frozen=True):
    """What the run did to the world, and what it may have done."""

    done: list[EffectPart]
    in_doubt: list[DoubtPart]


class QuestionPart(Struct, frozen=True):
    """What a person is asked."""

    number: int
    text: str
    options: list[str]
    form: Raw
    show: Raw
    assignee: str | None
    remind_at: list[float]
    escalate_at: float | None
    escalate_to: str | None
    approves: str | None


class WaitPart(StepPart, frozen=True):
    """A durable pause that has not ended."""

    reason: Literal["human", "time", "signal", "child"]
    since_at: float
    due_at: float | None
    question: QuestionPart | None
    signal: str | None
    child: Ref | None
    came_by: str | None
    command: str | None


class HolderPart(Struct, frozen=True):
    """The process that has the run."""

    worker: str
    pid: int | None
    host: str | None
    beat_at: float | None
    alive: bool | None


class ErrorPart(Struct, frozen=True):
    """Why the run stopped, or what an attempt met."""

    code: str
    message: str
    safe: str | None
    hint: str | None
    step: str | None


class Checkpoint(Struct, frozen=True):
    """The document."""

    format: int
    made_at: float
    at_step: int | None
    store: str
    run: RunPart
    goal: str | None
    arguments: Raw
    step: int
    total: float | None
    progress: ProgressPart | None
    position: Position
    working_state: dict[str, Raw]
    resources: list[ResourcePart]
    artifacts: list[Kept]
    pending: list[PendingPart]
    effects: EffectsPart
    waits: list[WaitPart]
    holder: HolderPart | None
    errors: list[ErrorPart]
    next: str | None
