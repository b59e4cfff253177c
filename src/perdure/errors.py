"""Every error a user can meet, each with what happened, what is safe, and what to do next.

PerdureError                      exit code
├── UsageError                    2
│   ├── NotInRun
│   ├── UnstorableValue
│   ├── UnknownRun
│   ├── AnswerRefused
│   ├── RunDeaf
│   └── InvalidSettings
├── ResumeError                   5
│   ├── JournalDiverged
│   ├── UnprotectedCall
│   ├── CheckpointCorrupt         6
│   ├── CommitsLost               6
│   ├── FormatTooNew              6
│   ├── ResourceMissing
│   ├── ResourceChanged
│   ├── RunImported
│   ├── RunMoved
│   ├── RunPinned
│   ├── EffectInDoubt             4
│   └── RunHeld
├── RunWaits                      3
│   └── LeaseLapsed
├── RunPaused                     5
├── StepFailed                    1
│   ├── AttemptsExhausted
│   ├── ApprovalDenied
│   └── DeadlineExceeded
├── DeliveriesExhausted           5
├── QueueFull                     5
├── StoreError                    6
│   ├── StoreUnavailable
│   ├── StoreFull
│   ├── StoreReadOnly
│   ├── SchemaTooNew
│   └── UnsafeEngine
└── InternalError                 1

Signal (BaseException)
├── RunSuspended                  the run stops here, resumably
├── RunCancelled                  somebody asked the run to end
├── RunRestarted                  the run goes on as a new one
└── LeaseLost                     another worker extends this run's journal now

Signals derive from BaseException because agent frameworks turn every Exception into text for the model. Correctness
never depends on one arriving: the store fences.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `perdure`: nothing here needs `typing` at run time
if TYPE_CHECKING:
    from typing import ClassVar, Final

START_OVER: Final = "start over: perdure run --fresh, or fresh=True in Python"
"""How a hint says that the same call begins anew, to whoever reads it."""


def saved_steps(count: int) -> str:
    """How an error says what is safe of a run."""
    return "its one completed step is saved" if count == 1 else f"its {count} completed steps are saved"


class PerdureError(Exception):
    """What happened (the message), what is safe, and what to do (the hint)."""

    code: ClassVar[str] = "perdure"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, safe: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.safe = safe
        self.hint = hint

    def lines(self) -> list[str]:
        """The lines shown to a person instead of a traceback."""
        shown = [f"perdure: {_inset(self.message)}"]
        if self.safe:
            shown.append(f"   safe: {_inset(self.safe)}")
        if self.hint:
            shown.append(f"     do: {_inset(self.hint)}")
        return shown


def _inset(text: str) -> str:
    """A text of several lines, of which none begins where ours do: what an agent asks must not look like our word."""
    return text.replace("\n", f"\n{' ' * len('perdure: ')}")


class UsageError(PerdureError):
    """perdure was called in a way that cannot work; nothing was changed."""

    code = "usage"
    exit_code = 2


class NotInRun(UsageError):
    """A call that only makes sense inside a run was made outside one."""

    code = "not_in_run"


class UnstorableValue(UsageError):
    """A value would not come back as it went in."""

    code = "unstorable_value"


class UnknownRun(UsageError):
    """No run has this id or name."""

    code = "unknown_run"


class InvalidSettings(UsageError):
    """A setting, an environment variable or pyproject.toml holds something perdure cannot use."""

    code = "invalid_settings"


class AnswerRefused(UsageError):
    """An answer or a signal that its run cannot take: it does not fit, comes second, or comes too late."""

    code = "answer_refused"


class RunDeaf(UsageError):
    """The run has finished: it hears no signal, no answer and no cancel any more."""

    code = "run_deaf"


class RunWaits(PerdureError):
    """The run waits for a person, a signal, a time or a child; nothing of it is in memory meanwhile."""

    code = "waiting"
    exit_code = 3
    reason: str = ""
    wake_at: float = 0.0
    """When the run goes on by itself, if it does."""
    moves: bool = False
    """Whether the child that it waits for is left to workers, and goes on there."""


class LeaseLapsed(RunWaits):
    """The store could not be reached to renew the run's lease, so it stopped; it goes on once the store is back."""

    code = "lease_lapsed"
    exit_code = 6


class RunPaused(PerdureError):
    """Somebody paused the run; it goes on when somebody says so."""

    code = "paused"
    exit_code = 5


class ResumeError(PerdureError):
    """The run cannot go on by itself; everything recorded is kept."""

    code = "resume"
    exit_code = 5


class JournalDiverged(ResumeError):
    """The code now makes another call than the one the journal recorded at this place."""

    code = "journal_diverged"


class UnprotectedCall(ResumeError):
    """A script that must be protected as a whole made a call that perdure cannot protect."""

    code = "unprotected_call"


class CheckpointCorrupt(ResumeError):
    """A record is damaged; it is never replayed as truth."""

    code = "checkpoint_corrupt"
    exit_code = 6


class CommitsLost(ResumeError):
    """The store is older than what was acknowledged: it was restored, cut or replaced."""

    code = "commits_lost"
    exit_code = 6


class FormatTooNew(ResumeError):
    """A record was written by a newer perdure."""

    code = "format_too_new"
    exit_code = 6


class ResourceMissing(ResumeError):
    """Something the run refers to is gone, or cannot be looked at."""

    code = "resource_missing"


class ResourceChanged(ResumeError):
    """Something the run refers to is not as the run left it."""

    code = "resource_changed"


class RunImported(ResumeError):
    """The run came from a file and may have gone further elsewhere; a person must ask for it by name."""

    code = "run_imported"


class RunMoved(ResumeError):
    """The run was moved to another store, or is on its way between two; it goes on in one of them only."""

    code = "run_moved"


class RunPinned(ResumeError):
    """The run is pinned to workers of another version of the code than this process has."""

    code = "run_pinned"


class EffectInDoubt(ResumeError):
    """An effect was started and never confirmed; a person must say what happened."""

    code = "effect_in_doubt"
    exit_code = 4


class RunHeld(ResumeError):
    """Another live process holds this run."""

    code = "run_held"


class StepFailed(PerdureError):
    """A step failed with an error that cannot be rebuilt as its own class."""

    code = "step_failed"


class AttemptsExhausted(StepFailed):
    """Every attempt the retry policy allows has failed."""

    code = "attempts_exhausted"


class ApprovalDenied(StepFailed):
    """A person did not approve the effect; it was not performed."""

    code = "approval_denied"


class DeadlineExceeded(StepFailed, TimeoutError):
    """A step took longer than its timeout, a run than its deadline, or a person to answer."""

    code = "deadline_exceeded"


class DeliveriesExhausted(PerdureError):
    """A run kept ending its workers without completing a step, and was parked."""

    code = "deliveries_exhausted"
    exit_code = 5


class QueueFull(PerdureError):
    """The queue of the run lets no more in just now; nothing was written, and the run keeps its place."""

    code = "queue_full"
    exit_code = 5
    seconds: float = 0.0
    """After how long it is worth asking again."""


class StoreError(PerdureError):
    """The store cannot do what was asked; what it acknowledged before stands."""

    code = "store"
    exit_code = 6


class StoreUnavailable(StoreError):
    """The store cannot be opened, or an input/output error stopped it."""

    code = "store_unavailable"


class StoreFull(StoreError):
    """No room is left where the store lives."""

    code = "store_full"


class StoreReadOnly(StoreError):
    """The store may not be written."""

    code = "store_read_only"


class SchemaTooNew(StoreError):
    """The store was written by a newer perdure; nothing was touched."""

    code = "schema_too_new"


class UnsafeEngine(StoreError):
    """An SQLite that can corrupt a database that two connections write."""

    code = "unsafe_engine"


class InternalError(PerdureError):
    """perdure broke one of its own rules; the run was stopped before it could do harm."""

    code = "internal"


class Signal(BaseException):
    """Control flow that user code must not mistake for a failure."""


class RunSuspended(Signal):
    """The run stops here and can be resumed."""


class RunCancelled(Signal):
    """Somebody asked for this run to end."""


class RunRestarted(Signal):
    """The agent asked to go on as a new run; carries the arguments of that."""

    def __init__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        super().__init__("the run goes on as a new one")
        self.arguments = (args, kwargs)
        self.next_id = ""


class LeaseLost(Signal):
    """Another worker has taken this run over; nothing more may be written or performed here."""
