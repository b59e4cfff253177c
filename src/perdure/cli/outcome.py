"""How a run that was moved in this process ended, for people and programs: its result, and what was not repeated."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click
from msgspec import Meta, Raw, Struct

import perdure
from perdure.bodies import Cost, added
from perdure.cli.contract import RunObject, run_object
from perdure.cli.mode import mode
from perdure.cli.options import looking
from perdure.cli.screen import INTERRUPTED_EXIT_CODE, say
from perdure.cli.status import status_of
from perdure.errors import ApprovalDenied, PerdureError, StepFailed, saved_steps
from perdure.telemetry.saving import not_repeated
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.records import Run
    from perdure.replay import Journal

_OWN_FOLDER: Final = Path(perdure.__file__).parent
_STANDARD_OUTPUT: Final = 1
_STANDARD_ERROR: Final = 2


class Saved(Struct, frozen=True):
    """What a resume did not have to do again."""

    steps: Annotated[int, Meta(description="how many steps were not repeated")] = 0
    seconds: Annotated[float, Meta(description="how long they had taken")] = 0.0
    dollars: Annotated[float, Meta(description="dollars they say they had taken")] = 0.0
    tokens: Annotated[int, Meta(description="tokens they say they had taken")] = 0

    @property
    def words(self) -> str:
        """In words; empty where nothing was done before."""
        if not self.steps:
            return ""
        return not_repeated(self.steps, seconds=self.seconds, dollars=self.dollars, tokens=self.tokens)

    def __add__(self, other: Saved) -> Saved:
        """What two runs did not repeat together."""
        return Saved(
            self.steps + other.steps,
            self.seconds + other.seconds,
            self.dollars + other.dollars,
            self.tokens + other.tokens,
        )


class Moved(Struct, frozen=True):
    """A run that has come to its end here, or a script with its newest run."""

    run: Annotated[RunObject | None, Meta(description="the run as it stands now; null where a script had none")]
    result: Annotated[Any, Meta(description="what its agent returned; null for a script")]
    saved: Annotated[Saved, Meta(description="what was not repeated")]
    exit_code: Annotated[int, Meta(description="the exit code; minus the signal where one ended a script")] = 0


class Interrupted(PerdureError):
    """Somebody pressed Ctrl-C while a run was executed here; it can be resumed."""

    code = "interrupted"
    exit_code = INTERRUPTED_EXIT_CODE


def saved_of(journal: Journal) -> Saved:
    """What a resume of this journal does not repeat."""
    done = [entry.done for _, entry in journal.completed() if entry.done]
    cost = Cost()
    for each in done:
        cost = added(cost, each.cost or Cost())
    return Saved(len(done), sum(each.seconds for each in done), cost.dollars, cost.tokens)


def show_result(sealed: bytes) -> None:
    """The agent's result on standard output, as JSON; an agent that returned nothing has none."""
    if sealed != b"null":
        text = sealed.decode()
        say(legible(text) if sys.stdout.isatty() else text)


def moved_object(run: Run, sealed: bytes, saved: Saved, *, shape: type[Moved] = Moved) -> Moved:
    """The same for programs."""
    with looking() as store:
        now = store.read_run(run.run_id) or run
        return shape(run_object(now, status_of(store, now)), Raw(sealed), saved)


@contextlib.contextmanager
def own_output() -> Iterator[None]:
    """With --json, what the agent prints meanwhile goes to standard error: standard output is for one object."""
    if not mode.as_json:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(_STANDARD_OUTPUT)
    os.dup2(_STANDARD_ERROR, _STANDARD_OUTPUT)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(kept, _STANDARD_OUTPUT)
        os.close(kept)


def failed(run: Run, error: Exception, *, steps: int, again: str) -> PerdureError:
    """What the agent itself raised, as its own traceback, and then where that leaves the run."""
    safe = f"{saved_steps(steps)}."
    hint = f"mend the cause, then: {again}"
    if isinstance(error, ApprovalDenied):
        hint = f"to be asked once more: {again}"
    if isinstance(error, PerdureError):
        error.safe, error.hint = error.safe or safe, error.hint or hint
        return error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    shown = "".join(traceback.format_list(frames)) + "".join(traceback.format_exception_only(error))
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"Traceback (most recent call last):\n{shown}", err=True, nl=False)
    return StepFailed(f"Run {run.name} failed: {type(error).__name__}: {error}", safe=safe, hint=hint)


def _is_ours(filename: str) -> bool:
    path = Path(filename)
    return path.is_relative_to(_OWN_FOLDER) and not path.relative_to(_OWN_FOLDER).parts[0].startswith("demo")
