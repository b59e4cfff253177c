"""`perdure step`: all that is known of one step of a run."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

import click

from perdure.cli.account import Account, StepObject
from perdure.cli.kin import Kin
from perdure.cli.mode import is_plain
from perdure.cli.options import command, commands, json_option, looking, run_argument, store_option
from perdure.cli.runs import find_run
from perdure.cli.screen import columns, print_json, say
from perdure.cli.step_lines import step_lines
from perdure.cli.table import command_lines
from perdure.cli.timeline import Teller, referred_runs
from perdure.cli.tree import label_of
from perdure.errors import UsageError
from perdure.status import open_effects, status_of
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from perdure.records import Run
    from perdure.status import Status
    from perdure.store.protocol import Store

_NAMED: Final = 5
_MAX_DIGITS: Final = 18
_CONSIDERED: Final = 1000
"""Among so many keys the one that was mistyped is looked for."""


@click.command()
@run_argument(required=True)
@click.argument("step", metavar="STEP")
@click.option("--full", is_flag=True, help="Whole values and traces, however long.")
@json_option(StepObject)
@store_option
def step(run: str, step: str, *, full: bool, as_json: bool) -> None:
    """Tell all of one step of RUN: its arguments and result, its attempts, what is known of an effect.

    STEP is its number in `perdure show RUN`, its name, or its key.
    """
    with looking() as store:
        found = find_run(store, run)
        records = store.load_journal(found.run_id)
        teller = Teller(records)
        name = commands().among(store).named(found)
        key = _chosen(teller, step, run=name)
        told = _object(store, found, teller, Account(store, records, teller.journal.entries[key], key), full=full)
        if as_json:
            print_json(told)
            return
        status = status_of(store, found, commands(), records=records, journal=teller.journal)
    names = {place: teller.journal.entries[place].name for place in teller.journal.batches}
    scopes = [label_of(scope, names) for scope in told.scope]
    for line in step_lines(told, scopes, of=len(teller.numbers), is_whole=full or is_plain(), is_full=full):
        say(line)
    if follow := _next(told, status, name):
        for line in command_lines(follow, width=0 if is_plain() else columns(), margin=""):
            say(line)


def _chosen(teller: Teller, wanted: str, *, run: str) -> str:
    """The key of the step that is meant; a text that means none or several is refused, with what there is."""
    keys = list(teller.journal.entries)
    if wanted.isdecimal() and wanted.isascii():
        if 0 < (number := int(wanted[:_MAX_DIGITS])) <= len(keys):
            return keys[number - 1]
        raise _unknown(teller, wanted, run=run)
    if wanted in teller.journal.entries:
        return wanted
    named = [key for key in keys if teller.journal.entries[key].name == wanted]
    if len(named) == 1:
        return named[0]
    if named:
        numbers = [str(teller.numbers[key]) for key in named[:_NAMED]]
        more = f" and {len(named) - _NAMED:,} more" if len(named) > _NAMED else ""
        raise UsageError(
            f"{len(named):,} steps of {run} are named {legible(wanted)}: {', '.join(numbers)}{more}.",
            safe="nothing was changed.",
            hint=command("step", run, numbers[0]),
        )
    raise _unknown(teller, wanted, run=run)


def _unknown(teller: Teller, wanted: str, *, run: str) -> UsageError:
    names = dict.fromkeys(entry.name for entry in teller.journal.entries.values())
    near = difflib.get_close_matches(wanted, [*names, *list(teller.numbers)[:_CONSIDERED]], n=3, cutoff=0.6)
    meant = f"did you mean {' or '.join(map(legible, near))}? " if near else ""
    count = len(teller.numbers)
    range_words = f": it has {counted(count, 'step')}" if count else ": none is recorded yet"
    return UsageError(
        f"There is no step {legible(wanted, 60)!r} in run {run}{range_words}.",
        safe="nothing was changed.",
        hint=f"{meant}{command('show', run)} numbers them",
    )


def _object(store: Store, run: Run, teller: Teller, account: Account, *, full: bool) -> StepObject:
    kin = Kin(store, referred_runs(account.records))
    doubts = {effect.key: effect.why for effect in open_effects(store, run, teller.journal)}
    return StepObject(
        run_id=run.run_id,
        run=run.name,
        number=teller.numbers[account.key],
        doubt=doubts.get(account.key, ""),
        moments=teller.tell(account.records, kin.words),
        **account.fields(mails=store.read_mail(run.run_id), everything=full),
    )


def _next(told: StepObject, status: Status, run: str) -> str:
    """What takes this step further; a step that is done needs nothing."""
    if told.state == "done":
        return ""
    return status.next or command("show", run)
