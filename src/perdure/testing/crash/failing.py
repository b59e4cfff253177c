"""Runs that are meant to fail: their failure is what comes of them, and is compared like any result."""

from __future__ import annotations

import errno
import itertools
import os
from typing import TYPE_CHECKING, Any, Final

from perdure.errors import StepFailed, StoreFull, UsageError
from perdure.testing.crash.subject import RUN_ID

if TYPE_CHECKING:
    from perdure.testing.crash.nursery import Ended
    from perdure.testing.crash.trial import Trial

FAILED: Final = "failed"
_TRACEBACK: Final = "Traceback (most recent call last):"
_NO_ROOM: Final = (os.strerror(errno.ENOSPC), "MB are needed to begin")
_ADVICE: Final = ("   safe: ", "     do: ")
_NOTHING: Final = "it said nothing"
_MOST_CHARACTERS: Final = 400
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


def what_happened(ended: Ended) -> str:
    """What a process said went wrong: its last message from where that begins, and not the advice below it."""
    lines = [line for line in ended.err.splitlines() if line.strip()]
    heads = [at for at, line in enumerate(lines) if line == _TRACEBACK]
    if heads:
        lines = [next((line for line in lines[heads[-1] + 1 :] if not line[0].isspace()), lines[-1])]
    begun = [at for at, line in enumerate(lines) if not line[0].isspace()]
    message = list(itertools.takewhile(_is_no_advice, lines[begun[-1] if begun else 0 :]))
    if not message:
        message = [f"it last printed {line!r}" for line in ended.out.rstrip().splitlines()[-1:]] or [_NOTHING]
    return " ".join(" ".join(message).split()).removeprefix("perdure: ")[:_MOST_CHARACTERS]


def _is_no_advice(line: str) -> bool:
    return not line.startswith(_ADVICE)


def lacks_room(trial: Trial, ended: Ended) -> bool:
    """Whether a process ended because there is no room left where its trial takes place."""
    error = trial.account().errors.get(ended.life, {})
    said = f"{error.get('message', '')}\n{ended.err}"
    return error.get("code") == StoreFull.code or any(sign in said for sign in _NO_ROOM)


def refuse_success() -> UsageError:
    """Nothing fails that was said to."""
    return UsageError(
        "It is meant to fail, and comes to its end without any kill.",
        safe="nothing was killed.",
        hint="leave --expect-failure out",
    )
