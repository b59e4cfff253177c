"""Executing one run in this process while somebody watches: its lines, its result, and what is said when it stops."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from perdure import codec, demo, events
from perdure.cli.mode import mode
from perdure.cli.options import looking, named_store
from perdure.cli.outcome import Interrupted, Moved, Saved, failed, moved_object, own_output, show_result
from perdure.cli.progress import Progress, kind_only
from perdure.cli.screen import good, print_json, tell
from perdure.cli.status import status_of
from perdure.errors import PerdureError, saved_steps
from perdure.records import Kind, RunState
from perdure.status import is_demo
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.records import Run


def move(
    work: Callable[[], Any],
    progress: Progress,
    *,
    again: str,
    saved: Saved | None = None,
    shape: type[Moved] = Moved,
) -> None:
    """Do what executes the run that `progress` watches, and show how it ends; `again` is how to go on if it stops."""
    unsubscribe = events.subscribe(progress)
    try:
        with own_output():
            value = work()
    except Exception as error:
        progress.close()
        run = _known(progress)
        if run is not None and progress.ended is not None and progress.ended.state == RunState.FAILED:
            raise failed(run, error, steps=progress.ended.steps, again=again) from error
        if run is not None and isinstance(error, PerdureError):
            _name_next(run, error)
        raise
    except KeyboardInterrupt:
        progress.close()
        raise interrupted(_known(progress), again=again) from None
    finally:
        unsubscribe()
        progress.close()
    _show(progress, codec.seal(value), saved or _saved(progress), shape)


def describing(agent: str) -> Callable[[str, str], tuple[str, str]]:
    """How the steps of this agent are shown."""
    return demo.described if is_demo(agent) else kind_only


def interrupted(run: Run | None, *, again: str) -> Interrupted:
    """What is said after Ctrl-C."""
    if run is None:
        return Interrupted("Interrupted.", safe="what was recorded is kept.", hint=again)
    with looking() as store:
        status = status_of(store, run)
    stopped = f"Run {run.name} was stopped ({legible(status.words)})."
    return Interrupted(stopped, safe=f"{saved_steps(run.steps)}.", hint=again)


def _show(progress: Progress, sealed: bytes, saved: Saved, shape: type[Moved]) -> None:
    run = _known(progress)
    if mode.as_json and run is not None:
        print_json(moved_object(run, sealed, saved, shape=shape))
        return
    if run is not None:
        tell(f"  {good('completed')}  {counted(run.steps, 'step')}{_delivery(run)}")
    show_result(sealed)


def _delivery(run: Run) -> str:
    """How often it was taken up, where that was more than once."""
    with looking() as store:
        deliveries = sum(record.kind == Kind.DELIVERY for record in store.load_journal(run.run_id))
    return f", delivery {deliveries}" if deliveries > 1 else ""


def _known(progress: Progress) -> Run | None:
    """The run as it stands now, or the one that goes on in its place."""
    if not progress.run_id:
        return None
    with contextlib.suppress(PerdureError), looking() as store:  # what stopped the run is what must be said
        return store.read_run(progress.ended.run_id if progress.ended else progress.run_id)
    return None


def _name_next(run: Run, error: PerdureError) -> None:
    """The engine does not know which store was named; what it says to type must look at the same one."""
    if named_store() and error.hint:
        with contextlib.suppress(PerdureError), looking() as store:
            error.hint = status_of(store, run).next or error.hint


def _saved(progress: Progress) -> Saved:
    resumed = progress.resumed
    if resumed is None:
        return Saved()
    return Saved(resumed.steps, resumed.saved_seconds, resumed.saved_dollars, resumed.saved_tokens)
