"""What a rehearsal says of one run: whether the code still fits its journal, and where it would go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct

from perdure.engine.active import _lies_within
from perdure.engine.failure import failed_calls, message_of
from perdure.engine.scope import Scope
from perdure.engine.undo import undoing_keys
from perdure.errors import JournalDiverged, PerdureError, RunPaused, StoreError
from perdure.records import RunState
from perdure.replay import left_over
from perdure.telemetry.text import counted, listed

if TYPE_CHECKING:
    from perdure.engine.active import Stop
    from perdure.records import Run
    from perdure.testing.rehearsal import Pending, Rehearsal

Outcome = Literal["fits", "diverges", "gone", "fails", "undecided"]
BAD: Final = frozenset({"diverges", "gone"})
"""With such an outcome a run would not go on."""

_NAMED: Final = 3


class Rehearsed(Struct, frozen=True):
    """What became of one run in the rehearsal."""

    run_id: Annotated[str, Meta(description="the run's id")]
    name: Annotated[str, Meta(description="its readable name")]
    agent: Annotated[str, Meta(description="the agent it is a run of")]
    outcome: Annotated[
        Outcome,
        Meta(
            description="fits: it goes on; diverges: it would park; gone: the code has no such agent; fails: the code "
            "raises before the journal ends; undecided: that could not be found out"
        ),
    ]
    steps: Annotated[int, Meta(description="how many recorded calls the code was seen to make again")]
    at: Annotated[int, Meta(description="the number of the step it would go on at; 0 where it has ended or would not")]
    words: Annotated[str, Meta(description="the outcome in words; of a divergence, both calls")]
    hint: Annotated[str, Meta(description="what to do about it; empty where nothing")]

    @property
    def is_fine(self) -> bool:
        """Whether the code may be deployed as far as this run is concerned."""
        return self.outcome == "fits"


def gone(run: Run, known: list[str]) -> Rehearsed:
    """The code has no such agent."""
    agents = listed(sorted(known), most=_NAMED) if known else "none"
    return _said(
        run,
        "gone",
        words=f"the code has no agent {run.agent}; its agents are: {agents}",
        hint=f"keep the agent, or give the new function its name: @perdure.agent(name={run.agent!r})",
    )


def taking_back(run: Run) -> Rehearsed:
    """A run of perdure's own, which takes another one's effects back by their records."""
    return _said(run, "fits", words="it takes back the effects of another run, as they are recorded")


def unreadable(run: Run, error: PerdureError) -> Rehearsed:
    """The journal cannot be read."""
    return _said(run, "undecided", words=error.message, hint=error.hint)


def late(active: Rehearsal, seconds: float) -> Rehearsed:
    """The code between the steps took too long."""
    return _said(
        active.row,
        "undecided",
        words=f"the code between its steps took longer than {seconds:g} s, after {counted(active.replayed, 'step')}",
        hint="move what takes long into a step, or raise the timeout",
        steps=active.replayed,
    )


def stopped(active: Rehearsal) -> Rehearsed:
    """Every strand stands still, or something stopped them."""
    stop = active.stop
    if stop is not None and isinstance(stop.error, JournalDiverged):
        return diverged(active, stop)
    if stop is not None and isinstance(stop.error, StoreError):
        return unreadable(active.row, stop.error)
    missed = list(_unreached(active))
    if missed:
        shown = active.journal.entries[missed[0]].shown_call()
        first = next(iter(active.pending.values()), None)
        before = f"{first.name} comes first and is not on record" if first else "nothing else is left to do"
        return _said(
            active.row,
            "undecided",
            words=f"{counted(len(missed), 'recorded call')} not reached, the first is {shown}: {before}",
            hint="look whether the change may run before what is recorded; if not, guard it with perdure.patched",
            steps=active.replayed,
        )
    return _said(active.row, "fits", words=_goes_on(active, stop), steps=active.replayed, at=_number(active))


def diverged(active: Rehearsal, stop: Stop) -> Rehearsed:
    """The code makes another call than the recorded one; what only a parked run can do about it is no advice here."""
    hint = stop.error.hint.partition("; or go on with the new code")[0].removesuffix(" and start again")
    return _said(active.row, "diverges", words=stop.error.message, hint=hint, steps=active.replayed)


def returned(active: Rehearsal) -> Rehearsed:
    """The agent came to its end."""
    entry = left_over(active.journal, active.unvisited)
    if entry is not None:
        active.diverge(entry.shown_call(), "(the agent returned without making this call)")
    if active.stop is not None:
        return stopped(active)
    return _said(active.row, "fits", words="nothing is left to do but to return", steps=active.replayed)


def raised(active: Rehearsal, error: BaseException) -> Rehearsed:
    """The agent raised, by a failure that is on record, or by one that is new."""
    if active.stop is not None:
        return stopped(active)
    ended = active.journal.ended
    what = f"{type(error).__name__}: {message_of(error)}"
    is_known = ended is not None and ended.failure is not None and ended.failure.message == message_of(error)
    is_undoing = any(key in active.journal.entries for key in undoing_keys(active.journal))
    if is_known or is_undoing or failed_calls(active, error):
        return _said(active.row, "fits", words=f"it fails as recorded: {what}", steps=active.replayed)
    return _said(
        active.row,
        "fails",
        words=f"the code raises {what}, after {counted(active.replayed, 'step')}",
        hint="code between the steps is executed by every replay: let it take what the run has recorded",
        steps=active.replayed,
    )


def _goes_on(active: Rehearsal, stop: Stop | None) -> str:
    if stop is not None and isinstance(stop.error, RunPaused):
        return "it is paused"
    pending = list(active.pending.values())
    if not pending:
        return "the journal ends here"
    return f"goes on at step {_number(active)}: {listed([_shown(each) for each in pending], most=_NAMED)}"


def _shown(pending: Pending) -> str:
    notes = {"in doubt": " (in doubt)", "open": " (waits)"}
    return f"{pending.name}{notes.get(pending.standing, '')}"


def _number(active: Rehearsal) -> int:
    numbers = {key: number for number, key in enumerate(active.journal.entries, 1)}
    return min((numbers.get(key, len(numbers) + 1) for key in active.pending), default=0)


def _unreached(active: Rehearsal) -> Iterator[str]:
    """The recorded calls that the code has not come by, where it should have before all of it stood still."""
    journal = active.journal
    excused = {key for place in active.pending for key in journal.inside(place)}
    taking_back = undoing_keys(journal)
    for key in active.unvisited:
        if key in excused or key in taking_back or _is_passed(active, key) or _is_in_source(active, key):
            continue
        if journal.entries[key].is_waiting and journal.ended is not None and journal.ended.state == RunState.FAILED:
            continue
        yield key


def _is_passed(active: Rehearsal, key: str) -> bool:
    """Whether it handled the failure of a call that a resume attempts anew: that stands, and is passed by."""
    passed = [active.journal.passed.get(each, {}) for each in active.pending]
    return any(_lies_within(key, Scope(path), reached) for each in passed for path, reached in each.items())


def _is_in_source(active: Rehearsal, key: str) -> bool:
    """Whether it was made by the source of a map that goes on: the source is walked again, as far as is needed."""
    scopes = (each.rpartition(".")[0] for each in active.pending)
    return "/items#" in key and any(key.startswith(f"{scope}/items#") for scope in scopes)


def _said(run: Run, outcome: Outcome, *, words: str, hint: str = "", steps: int = 0, at: int = 0) -> Rehearsed:
    return Rehearsed(run.run_id, run.name, run.agent, outcome, steps, at, words, hint)
