"""`perdure logs`: one line for each record of a run, as it was written, or as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import msgspec

from perdure import clock
from perdure.cli.kin import Kin
from perdure.cli.mode import mode
from perdure.cli.options import json_option, looking, run_argument, store_option
from perdure.cli.rows import cost_words
from perdure.cli.runs import find_run
from perdure.cli.screen import bad, bold, dim, say, tell
from perdure.cli.status import status_of
from perdure.cli.timeline import Moment, Teller, referred_runs
from perdure.records import FINISHED, Kind, RunState
from perdure.telemetry.text import duration, legible

if TYPE_CHECKING:
    from perdure.records import Record, Run
    from perdure.store.protocol import Store

LOOK_SECONDS: Final = 0.3
_TIMED: Final = frozenset({Kind.STEP, Kind.RECEIPT, Kind.BATCH})


@click.command()
@run_argument(required=True)
@click.option("--follow", "-f", is_flag=True, help="Go on as records are written, until the run ends or Ctrl-C.")
@click.option("--since", metavar="SEQ", type=click.IntRange(min=0), default=0, help="From this record on.")
@json_option(Moment)
@store_option
def logs(run: str, *, follow: bool, since: int, as_json: bool) -> None:
    """Print what was recorded of RUN, a line for each record; times are UTC.

    With --json each line is one JSON object. Following goes on across a crash, and when another process resumes the
    run.
    """
    del as_json
    with looking() as store:
        found = find_run(store, run)
        seen = Log(store, found, since=since)
        try:
            seen.print_new()
            if follow:
                seen.follow()
        except KeyboardInterrupt:  # this is how following ends
            if not follow:
                raise


class Log:
    """How far a run's journal was printed."""

    def __init__(self, store: Store, run: Run, *, since: int) -> None:
        self._store = store
        self._run = run
        self._next = since
        self._said = ""

    def follow(self) -> None:
        """Print what comes, until the run is over; the end of one that ended under our eyes is still to be read."""
        while not _is_over(self._run) or self._run.length > self._next:
            self._say_if_nobody_goes_on()
            clock.sleep(LOOK_SECONDS)
            self.print_new()

    def print_new(self) -> None:
        """Print the records that were not printed yet; the journal is read only where it grew."""
        row = self._store.read_run(self._run.run_id) or self._run
        if row.length > self._next:
            records = self._store.load_journal(row.run_id)
            self._print(records, records[self._next :])
            self._next = len(records)
            row = self._store.read_run(row.run_id) or row
        self._run = row

    def _print(self, records: list[Record], new: list[Record]) -> None:
        kin = Kin(self._store, referred_runs(new))
        for moment in Teller(records).tell(new, kin.words):
            say(msgspec.json.encode(moment).decode() if mode.as_json else _line(moment))

    def _say_if_nobody_goes_on(self) -> None:
        """Where a run stands still, say why, once, beside the log."""
        status = status_of(self._store, self._run)
        stands_still = status.state in (RunState.QUEUED, RunState.WAITING)
        words = f"{status.words}: {status.cause.splitlines()[0]}" if stands_still else ""
        if words and words != self._said:
            tell(dim(f"— {legible(words)}" + (f"; next: {status.next}" if status.next else "")))
        self._said = words


def _is_over(run: Run) -> bool:
    return run.state in FINISHED or run.state == RunState.FAILED


def _line(moment: Moment) -> str:
    at = clock.instant(moment.at).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if not moment.number:
        return f"{dim(at)}  {_paint(moment)}{_process(moment)}"
    facts = [duration(moment.seconds)] if moment.record in _TIMED else []
    facts += [f"attempt {moment.attempt}"] if moment.attempt > 1 and moment.record in _TIMED else []
    facts += filter(None, [cost_words(dollars=moment.dollars, tokens=moment.tokens)])
    tail = f", {', '.join(facts)}" if facts else ""
    return f"{dim(at)}  {moment.number:>4} {bold(legible(moment.call))}  {_paint(moment)}{tail}"


def _paint(moment: Moment) -> str:
    text = legible(moment.text)
    is_bad = moment.failed or moment.record == Kind.ATTEMPT
    return bad(text) if is_bad else text


def _process(moment: Moment) -> str:
    return f" (pid {moment.pid} on {legible(moment.host)})" if moment.delivery > 1 else ""
