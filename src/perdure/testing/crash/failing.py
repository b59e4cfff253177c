"""Runs that are meant to fail: their failure is what comes of them, and is compared like any result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.errors import StepFailed, UsageError
from perdure.testing.crash.subject import RUN_ID

if TYPE_CHECKING:
    from perdure.testing.crash.nursery import Ended
    from perdure.testing.crash.trial import Trial

FAILED: Final = "failed"
_OF_THE_AGENT: Final = frozenset({StepFailed.exit_code, UsageError.exit_code})
"""How a process ends whose agent has failed; every other code says that a run only cannot go on here and now."""


def failure_of(trial: Trial, ended: Ended) -> dict[str, Any] | None:
    """What a run failed with in this process, where it is meant to; None where it did not, or may still go on."""
    if not trial.options.fails or ended.is_late or ended.code not in _OF_THE_AGENT:
        return None
    evidence = trial.evidence()
    if trial.bench.subject.kind == "agent":
        failure = evidence.failure(RUN_ID)
        return None if failure is None else {FAILED: failure}
    if evidence.unfinished():
        return None
    last = ended.err.strip().splitlines()[-1:] or [""]
    return {FAILED: {"exit_code": ended.code, "last_line": last[0]}}


def refuse_success() -> UsageError:
    """Nothing fails that was said to."""
    return UsageError(
        "It is meant to fail, and comes to its end without any kill.",
        safe="nothing was killed.",
        hint="leave --expect-failure out",
    )
