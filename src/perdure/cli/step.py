"""`perdure step`: all that is known of one step of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from perdure.cli.account import Account, StepObject
from perdure.cli.kin import Kin
from perdure.cli.misuse import did_you_mean
from perdure.cli.mode import is_plain
from perdure.cli.options import command, commands, json_option, looking, run_argument, store_option
from perdure.cli.runs import find_run
from perdure.cli.screen import print_json, room, say
from perdure.cli.status import status_of
from perdure.cli.step_lines import step_lines
from perdure.cli.table import command_lines
from perdure.cli.timeline import Teller, referred_runs
from perdure.cli.tree import label_of
from perdure.cli.typed import whole_number
from perdure.errors import UsageError
from perdure.status import open_effects
from perdure.telemetry.text import counted, legible, listed

if TYPE_CHECKING:
    from perdure.records import Run
    from perdure.status import Status
    from perdure.store.protocol import Store

_NAMED: Final = 5
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
        status = status_of(store, found, records=records, journal=teller.journal)
    names = {place: teller.journal.entries[place].name for place in teller.journal.batches}
    scopes = [label_of(scope, names) for scope in told.scope]
    for line in step_lines(told, scopes, of=len(teller.numbers), is_whole=full or is_plain(), is_full=full):
        say(line)
    if follow := _next(told, status, name):
        for line in command_lines(follow, width=room(), margin=""):
            say(line)


def _chosen(teller: Teller, wanted: str, *, run: str) -> str:
    """The key of the step that is meant; a text that means none or several is refused, with what there is."""
    keys = list(teller.journal.entries)
    if (number := whole_number(wanted)) is not None:
        if 0 < number <= len(keys):
            return keys[number - 1]
        raise _unknown(teller, wanted, run=run)
    if wanted in teller.journal.entries:
        return wanted
    named = [key for key in keys if teller.journal.entries[key].name == wanted]
    if len(named) == 1:
        return named[0]
    if named:
        numbers = [str(teller.numbers[key]) for key in named]
        raise UsageError(
            f"{len(named):,} steps of {run} are named {legible(wanted)}: {listed(numbers, most=_NAMED)}.",
            safe="nothing was changed.",
            hint=command("step", run, numbers[0]),
        )
    raise _unknown(teller, wanted, run=run)


def _unknown(teller: Teller, wanted: str, *, run: str) -> UsageError:
    names = dict.fromkeys(entry.name for entry in teller.journal.entries.values())
    meant = did_you_mean(wanted, [*names, *list(teller.numbers)[:_CONSIDERED]], most=3, cutoff=0.6)
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
