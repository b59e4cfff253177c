"""`perdure show`: the runs there are, or what happened in one of them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from perdure import clock
from perdure.cli.options import command, looking, run_argument, store_option
from perdure.cli.runs import every_run, find_run
from perdure.cli.screen import bad, bold, columns, dim, doubtful, good, joined, say, spread
from perdure.cli.status import Status, open_effects, status_of
from perdure.cli.timeline import Moment, moments
from perdure.records import Ended, Kind, Run, RunState, read_body
from perdure.replay import Journal
from perdure.telemetry.text import age, counted, legible

if TYPE_CHECKING:
    from perdure.records import Record
    from perdure.store.protocol import Finding, Store

LISTED: Final = 20
_RESULT_CHARACTERS: Final = 500
_CAUSE_CHARACTERS: Final = 240
_MARKS: Final = {
    Kind.STEP: good("✔"),
    Kind.RECEIPT: good("✔"),
    Kind.BATCH: good("✔"),
    Kind.ATTEMPT: bad("✘"),
    Kind.INTENT: doubtful("▸"),
    Kind.DOUBT: doubtful("?"),
    Kind.VERDICT: good("="),
}
_ALIGNED: Final = frozenset({Kind.STEP, Kind.INTENT, Kind.RECEIPT})
_CALL_COLUMNS: Final = 32
_COLOURS: Final = {
    RunState.COMPLETED: good,
    RunState.RUNNING: good,
    RunState.FAILED: bad,
    RunState.WAITING: doubtful,
}


@click.command()
@run_argument(required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@click.option("--all", "everything", is_flag=True, help=f"All runs, not only the newest {LISTED}.")
@store_option
def show(run: str | None, *, as_json: bool, everything: bool) -> None:
    """List the runs, newest first; with RUN, tell what happened in it.

    \b
    --json without RUN: {"store", "runs": [run, …], "damaged": [{"where", "what", "trusted"}, …]}
    --json with RUN:    {"store", "run": run, "timeline": [moment, …],
                         "in_doubt": [{"number", "key", "name", "attempt", "shown", "why"}, …]}
    run:    run_id, name, agent, state, reason, cause, next, steps, deliveries,
            created_at, updated_at (seconds since 1970, UTC)
    moment: seq, at, record, text; for a step also number, key, name, kind, call,
            attempt, seconds, failed
    """  # noqa: D301 - \b is click's mark for text that is not rewrapped
    with looking() as store:
        if run is None:
            _list(store, as_json=as_json, limit=None if everything or as_json else LISTED)
        else:
            _tell(store, find_run(store, run), as_json=as_json)


def _list(store: Store, *, as_json: bool, limit: int | None) -> None:
    runs, damaged = every_run(store)
    listed = [(run, status_of(store, run)) for run in runs[:limit]]
    if as_json:
        objects = [_run_object(run, status) for run, status in listed]
        _print_json({"store": store.location, "runs": objects, "damaged": damaged})
        return
    if not runs and not damaged:
        say(f"No runs in {store.location} yet. {command('demo')} shows how it works.")
        return
    say(dim(f"{'RUN':<17} {'AGENT':<22} {'STATE':<19} {'STEPS':>6} {'AGE':>7}"))
    for run, status in listed:
        _list_run(run, status)
    for finding in damaged:
        _list_damage(finding)
    if len(listed) < len(runs):
        say(dim(f"… and {len(runs) - len(listed)} older: {command('show', '--all')}"))


def _list_run(run: Run, status: Status) -> None:
    paint = _COLOURS.get(RunState(status.state), str)
    state = paint(f"{status.words:<19}")
    ago = age(clock.wall_seconds() - run.created_at)
    say(f"{bold(f'{legible(run.name, 17):<17}')} {legible(run.agent, 22):<22} {state} {run.steps:>6} {ago:>7}")
    if status.cause:
        say(f"  {dim(legible(status.cause.splitlines()[0].removeprefix(f'Run {run.name}: '), _CAUSE_CHARACTERS))}")
    if status.next:
        say(f"  {dim('next:')} {status.next}")


def _list_damage(finding: Finding) -> None:
    say(f"{bad('damaged')}  {legible(finding.where)}: {legible(finding.what)}")
    say(f"  {dim('next:')} {command('verify')}")


def _tell(store: Store, run: Run, *, as_json: bool) -> None:
    records = store.load_journal(run.run_id)
    status = status_of(store, run)
    told = moments(records)
    if as_json:
        in_doubt = [
            {name: getattr(effect, name) for name in ("number", "key", "name", "attempt", "shown", "why")}
            for effect in open_effects(store, run, Journal(records))
        ]
        whole = {"store": store.location, "run": _run_object(run, status), "timeline": told, "in_doubt": in_doubt}
        _print_json(whole)
        return
    _tell_head(run, status, records)
    for moment, following in itertools.zip_longest(told, told[1:]):
        is_latest = following is None or (following.record, following.key) != (Kind.BATCH, moment.key)
        if moment.record != Kind.BATCH or is_latest:  # of the batches of one map in a row the last says it all
            _tell_moment(moment, began=run.created_at)
    _tell_end(store, status, records[-1])


def _tell_head(run: Run, status: Status, records: list[Record]) -> None:
    state = _COLOURS.get(RunState(status.state), str)(status.words)
    say(spread(f"{bold(run.name)}  {legible(run.agent)}", f"{state}, {counted(run.steps, 'step')}"))
    began = clock.instant(run.created_at).strftime("%Y-%m-%d %H:%M:%S UTC")
    say(dim(f"  id {legible(run.run_id)}   started {began}"))
    arguments = bytes(read_body(records[0]).arguments).decode()
    if arguments != "{}":
        say(dim(f"  arguments {legible(arguments, max(40, columns() - 12))}"))


def _tell_moment(moment: Moment, *, began: float) -> None:
    if moment.record == Kind.DELIVERY:
        say(dim(f"  — {legible(moment.text)} —"))
        return
    if not moment.number:
        if moment.record not in (Kind.STARTED, Kind.ENDED):
            say(f"  {legible(moment.text)}")
        elif moment.record == Kind.ENDED and not moment.text.startswith(RunState.COMPLETED):
            say(dim(f"  — {legible(moment.text.splitlines()[0], columns() - 6)} —"))
        return
    mark = bad("✘") if moment.failed else _MARKS.get(Kind(moment.record), " ")
    attempt = f"attempt {moment.attempt} " if moment.attempt > 1 else ""
    left = f"{moment.number:>4} {_offset(moment.at - began):>7}  {mark} "
    if moment.record in _ALIGNED and not moment.failed:
        call = legible(moment.call, _CALL_COLUMNS)
        took = f"{moment.seconds:.1f} s" if moment.record != Kind.INTENT else ""
        what = "" if moment.record == Kind.STEP else f"{moment.text} "
        say(f"{left}{call:<{_CALL_COLUMNS}} {moment.kind:<6} {what}{attempt}{took}".rstrip())
    else:
        say(f"{left}{legible(moment.name)}  {legible(moment.text)}")


def _tell_end(store: Store, status: Status, last: Record) -> None:
    ended = read_body(last) if last.kind == Kind.ENDED else None
    if isinstance(ended, Ended) and ended.state == RunState.COMPLETED:
        sealed = store.load_blob(bytes.fromhex(ended.blob)) if ended.blob else bytes(ended.value)
        say(f"  {good('completed')}")
        say(f"  result: {legible(sealed.decode(), _RESULT_CHARACTERS)}")
    if status.cause:
        say(joined(status.words, legible(status.cause.splitlines()[0])))
        for line in status.cause.splitlines()[1:]:
            say(f"  {legible(line)}")
    if status.hint:
        say(f"  {dim('do:')} {legible(status.hint)}")
    if status.next:
        say(f"{dim('next:')} {status.next}")


def _offset(seconds: float) -> str:
    return f"+{seconds:.1f}s" if seconds < 1000 else f"+{age(seconds).replace(' ', '')}"  # noqa: PLR2004 - five digits


def _run_object(run: Run, status: Status) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "name": run.name,
        "agent": run.agent,
        "state": status.state,
        "reason": status.reason,
        "cause": status.cause,
        "next": status.next,
        "steps": run.steps,
        "deliveries": run.deliveries,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
    }


def _print_json(value: object) -> None:
    say(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
