"""`perdure show`: the runs there are, or what happened in one of them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import click

from perdure import clock
from perdure.checkpoint import document
from perdure.cli.options import command, commands, looking, run_argument, store_option
from perdure.cli.question import SHORT_LINES, tell_question
from perdure.cli.runs import every_run, find_run
from perdure.cli.screen import bad, bold, columns, dim, doubtful, good, joined, print_json, say, spread
from perdure.cli.status import Status, open_effects, status_of
from perdure.cli.timeline import Moment, moments, progress_words, referred_runs
from perdure.errors import UsageError
from perdure.records import FINISHED, Ended, Kind, Run, RunState, read_body
from perdure.replay import Journal
from perdure.status import newest, open_waits, parent_of, tags_of
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
    Kind.WAIT: doubtful("◦"),
    Kind.ANSWER: good("✔"),
    Kind.NOTE: dim("·"),
}
_ALIGNED: Final = frozenset({Kind.STEP, Kind.INTENT, Kind.RECEIPT})
_CALL_COLUMNS: Final = 32
_AGENT_COLUMNS: Final = (8, 22)
_OTHER_COLUMNS: Final = 53
_MAX_DIGITS: Final = 18
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
@click.option("--tag", "tags", metavar="NAME=VALUE", multiple=True, help="Only runs with this tag.")
@click.option("--checkpoint", "as_checkpoint", is_flag=True, help="Everything needed to act on RUN, as JSON.")
@click.option("--at", "at_step", metavar="STEP", help="With --checkpoint: as it was after that many completed steps.")
@store_option
def show(
    run: str | None,
    *,
    as_json: bool,
    everything: bool,
    tags: tuple[str, ...],
    as_checkpoint: bool,
    at_step: str | None,
) -> None:
    """List the runs, newest first; with RUN, tell what happened in it.

    \b
    --json without RUN: {"store", "runs": [run, …], "damaged": [{"where", "what", "trusted"}, …]}
    --json with RUN:    {"store", "run": run, "timeline": [moment, …],
                         "in_doubt": [{"number", "key", "name", "attempt", "shown", "why"}, …]}
    run:    run_id, name, agent, state, reason, cause, next, steps, deliveries,
            created_at, updated_at (seconds since 1970, UTC), tags, progress (null, or
            {"done", "total", "text"})
    moment: seq, at, record, text; for a step also number, key, name, kind, call,
            attempt, seconds, failed
    --checkpoint: documented in docs/reference/checkpoint.md
    """  # noqa: D301 - \b is click's mark for text that is not rewrapped
    wanted = _wanted_tags(tags)
    _refuse_mixed(run, tags=wanted, as_checkpoint=as_checkpoint, at_step=at_step)
    with looking() as store:
        if run is None:
            _list(store, as_json=as_json, limit=None if everything or as_json else LISTED, tags=wanted)
        elif as_checkpoint:
            print_json(document(store, find_run(store, run), commands=commands(), at_step=_step(at_step)))
        else:
            _tell(store, find_run(store, run), as_json=as_json)


def _wanted_tags(texts: tuple[str, ...]) -> dict[str, str]:
    wanted = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(
                f"--tag {legible(text, 60)!r} is no tag.", safe="nothing was changed.", hint="--tag team=billing"
            )
        wanted[name] = value
    return wanted


def _refuse_mixed(run: str | None, *, tags: dict[str, str], as_checkpoint: bool, at_step: str | None) -> None:
    if run is not None and tags:
        problem, hint = "RUN and --tag exclude each other", "perdure show --tag NAME=VALUE"
    elif run is None and as_checkpoint:
        problem, hint = "--checkpoint needs a RUN", "perdure show RUN --checkpoint"
    elif at_step is not None and not as_checkpoint:
        problem, hint = "--at belongs to --checkpoint", "perdure show RUN --checkpoint --at STEP"
    else:
        return
    raise UsageError(f"{problem}.", safe="nothing was changed.", hint=hint)


def _step(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isdecimal() and text.isascii()):
        raise UsageError(
            f"--at {legible(text, 60)!r} is no number of steps.",
            safe="nothing was changed.",
            hint="--at 0 is the beginning, --at 1 after the first completed step",
        )
    return int(text[:_MAX_DIGITS])


def _list(store: Store, *, as_json: bool, limit: int | None, tags: dict[str, str]) -> None:
    every, damaged = every_run(store)
    runs = [run for run in every if tags.items() <= tags_of(run).items()]
    listed = [(run, status_of(store, run)) for run in runs[:limit]]
    if as_json:
        objects = [_run_object(run, status) for run, status in listed]
        print_json({"store": store.location, "runs": objects, "damaged": damaged})
        return
    if not runs and every:
        say(f"No run in {store.location} has {legible(_tag_words(tags))}.")
        return
    if not runs and not damaged:
        say(f"No runs in {store.location} yet. {command('demo')} shows how it works.")
        return
    say(dim(f"{'RUN':<17} {'AGENT':<{_agent_columns()}} {'STATE':<19} {'STEPS':>6} {'AGE':>7}"))
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
    width = _agent_columns()
    agent = f"{legible(run.agent, width):<{width}}"
    say(f"{bold(f'{legible(run.name, 17):<17}')} {agent} {state} {run.steps:>6} {ago:>7}")
    facts = _facts(run, status)
    if facts:
        say(f"  {facts}")
    if status.cause:
        say(f"  {dim(legible(status.cause.splitlines()[0].removeprefix(f'Run {run.name}: '), _CAUSE_CHARACTERS))}")
    if status.next:
        say(f"  {dim('next:')} {status.next}")


def _facts(run: Run, status: Status) -> str:
    """How far the agent says it is, and the run's tags."""
    progress = f"progress {progress_words(status.progress)}" if status.progress else ""
    return legible("   ".join(filter(None, (progress, _tag_words(tags_of(run))))), _CAUSE_CHARACTERS)


def _tag_words(tags: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in tags.items())


def _agent_columns() -> int:
    """The room for the agent's name in a list that fits the terminal."""
    return max(_AGENT_COLUMNS[0], min(_AGENT_COLUMNS[1], columns() - _OTHER_COLUMNS))


def _list_damage(finding: Finding) -> None:
    say(f"{bad('damaged')}  {legible(finding.where)}: {legible(finding.what)}")
    say(f"  {dim('next:')} {command('verify')}")


def _tell(store: Store, run: Run, *, as_json: bool) -> None:
    records = store.load_journal(run.run_id)
    status = status_of(store, run)
    journal = Journal(records)
    told = moments(records, _run_words(store, referred_runs(records)))
    if as_json:
        in_doubt = [
            {name: getattr(effect, name) for name in ("number", "key", "name", "attempt", "shown", "why")}
            for effect in open_effects(store, run, journal)
        ]
        whole = {"store": store.location, "run": _run_object(run, status), "timeline": told, "in_doubt": in_doubt}
        print_json(whole)
        return
    _tell_head(run, status, records, parent_of(store, journal))
    for moment, following in itertools.zip_longest(told, told[1:]):
        is_latest = following is None or (following.record, following.key) != (Kind.BATCH, moment.key)
        if moment.record != Kind.BATCH or is_latest:  # of the batches of one map in a row the last says it all
            _tell_moment(moment, began=run.created_at)
    if run.state not in FINISHED:
        _tell_questions(store, run, journal)
    for mail in store.read_mail(run.run_id):
        if mail.kind == "refused":
            at = _offset(mail.at - run.created_at)
            say(dim(f"     {at:>7}  · an answer by {legible(mail.by)} came second or too late, and was not used"))
    _tell_end(store, status, records[-1])


def _run_words(store: Store, run_ids: list[str]) -> dict[str, str]:
    """The runs that a journal names, each with its name and where it stands."""
    found = {run_id: newest(store, store.read_run(run_id)) for run_id in run_ids}
    return {
        run_id: f"{run.name}, {status_of(store, run).words}" if run is not None else f"{run_id}, not accepted yet"
        for run_id, run in found.items()
    }


def _tell_questions(store: Store, run: Run, journal: Journal) -> None:
    waits = open_waits(store, run, journal)
    for wait in waits:
        if wait.opened.question is not None:
            tell_question(wait, lines=SHORT_LINES)


def _tell_head(run: Run, status: Status, records: list[Record], parent: Run | None) -> None:
    state = _COLOURS.get(RunState(status.state), str)(status.words)
    say(spread(f"{bold(run.name)}  {legible(run.agent)}", f"{state}, {counted(run.steps, 'step')}"))
    began = clock.instant(run.created_at).strftime("%Y-%m-%d %H:%M:%S UTC")
    say(dim(f"  id {legible(run.run_id)}   started {began}"))
    if parent is not None:
        say(dim(f"  child of {legible(parent.name)} ({legible(parent.agent)})"))
    facts = _facts(run, status)
    if facts:
        say(dim(f"  {facts}"))
    arguments = bytes(read_body(records[0]).arguments).decode()
    if arguments != "{}":
        say(dim(f"  arguments {legible(arguments, max(40, columns() - 12))}"))


def _tell_moment(moment: Moment, *, began: float) -> None:
    if moment.record == Kind.DELIVERY:
        say(dim(f"  — {legible(moment.text)} —"))
        return
    if not moment.number:
        if moment.record == Kind.NOTE:
            say(dim(f"     {_offset(moment.at - began):>7}  · {legible(moment.text, _CAUSE_CHARACTERS)}"))
        elif moment.record not in (Kind.STARTED, Kind.ENDED):
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
    note = status.progress
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
        "tags": tags_of(run),
        "progress": None if note is None else {"done": note.done, "total": note.total, "text": note.text},
    }
