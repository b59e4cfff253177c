"""`perdure diff`: what changed between two steps of a run, or where two runs part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import msgspec

from perdure.cli.contract import run_object
from perdure.cli.difference import (
    ChangeObject,
    Difference,
    Parting,
    Side,
    changes,
    compared,
    outcome_changes,
    state_changes,
    steps_between,
)
from perdure.cli.options import command, json_option, looking, run_argument, store_option
from perdure.cli.runs import find_run
from perdure.cli.screen import bad, bold, columns, dim, doubtful, good, print_json, say
from perdure.cli.status import status_of
from perdure.cli.typed import whole_number
from perdure.engine.fork import arguments_of
from perdure.engine.prefix import cut, steps_in
from perdure.engine.whereabouts import of_one_moment
from perdure.errors import UsageError
from perdure.replay import Journal
from perdure.status import origin_of, origin_words
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from msgspec import Raw

    from perdure.records import Record, Run
    from perdure.store.protocol import Store

_SHOWN_CHARACTERS: Final = 200
_MARKS: Final = {"added": good("+"), "removed": bad("-"), "changed": doubtful("~")}


@click.command()
@run_argument(required=True)
@click.argument("first", metavar="[A|OTHER]", required=False)
@click.argument("second", metavar="[B]", required=False)
@json_option(Difference)
@store_option
def diff(run: str, first: str | None, second: str | None, *, as_json: bool) -> None:
    """Show how RUN changed from step A to step B, or how RUN and the run OTHER differ.

    A and B count completed steps; 0 is the beginning, and without B the last step is meant. Of two runs you see their
    arguments, the first step where they part, equal calls that ended differently, and how they end. A fork alone is
    compared with the run it comes from.
    """
    with looking() as store:
        found = find_run(store, run)
        if first is not None and (second is not None or whole_number(first) is not None):
            made = _between_steps(store, found, first, second)
        else:
            made = _between_runs(store, _other(store, found, first), found, is_swapped=first is not None)
    if as_json:
        print_json(made)
    elif made.before.at is not None:
        _show_steps(made)
    else:
        _show_runs(made)


def _other(store: Store, run: Run, wanted: str | None) -> Run:
    """The run to compare with: the one that is named, or the one that this is a fork of."""
    if wanted is not None:
        return _not_itself(run, find_run(store, wanted))
    origin = origin_of(Journal(store.load_journal(run.run_id)))
    if origin is None:
        raise UsageError(
            f"Run {run.name} is to be compared with what?",
            safe="nothing was changed.",
            hint=f"two of its steps: {command('diff', run.name, '0', str(run.steps))}; or another run: perdure ls",
        )
    return find_run(store, origin.run_id)


def _not_itself(run: Run, other: Run) -> Run:
    if other.run_id != run.run_id:
        return other
    raise UsageError(
        f"Run {run.name} is to be compared with itself.",
        safe="nothing was changed.",
        hint=f"two of its steps: {command('diff', run.name, '0', str(run.steps))}; or another run: perdure ls",
    )


def _between_steps(store: Store, run: Run, first: str, second: str | None) -> Difference:
    run, records = of_one_moment(store, run)
    known = steps_in(records)
    one, other = (_step(run, text, known) for text in (first, str(known) if second is None else second))
    positions = [cut(records, at, of=run.name) for at in (one, other)]
    shown = run_object(run, status_of(store, run))
    return Difference(
        before=Side(shown, one),
        after=Side(shown, other),
        state=state_changes(records[: positions[0]], records[: positions[1]]),
        steps=steps_between(records, min(positions), max(positions)),
    )


def _step(run: Run, text: str, known: int) -> int:
    number = whole_number(text)
    if number is not None and number <= known:
        return number
    what = "is no number of steps" if number is None else f"is too much: run {run.name} has completed {known}"
    raise UsageError(
        f"{legible(text, 60)} {what}.",
        safe="nothing was changed.",
        hint=f"0 is the beginning, {known} the last step: {command('diff', run.name, '0', str(known))}",
    )


def _between_runs(store: Store, other: Run, run: Run, *, is_swapped: bool) -> Difference:
    """The first that is named comes first; a fork comes after the run it is a fork of."""
    sides = [of_one_moment(store, each) for each in ((run, other) if is_swapped else (other, run))]
    (one, before), (two, after) = sides
    equal, results, parting = compared(before, after)
    return Difference(
        before=_side(store, one, before),
        after=_side(store, two, after),
        arguments=changes(_arguments(before), _arguments(after)),
        equal=equal,
        results=results,
        parting=parting,
        state=state_changes(before, after),
        outcome=outcome_changes((one, before), (two, after)),
    )


def _side(store: Store, run: Run, records: list[Record]) -> Side:
    origin = origin_of(Journal(records))
    return Side(run_object(run, status_of(store, run)), None, origin_words(origin) if origin else "")


def _arguments(records: list[Record]) -> dict[str, Raw]:
    return arguments_of(Journal(records).started())


def _show_steps(made: Difference) -> None:
    run = made.before.run
    say(f"{bold(legible(run.name))}  {legible(run.agent)}, step {made.before.at} → step {made.after.at}")
    _show_changes("working state", made.state, nothing="the same")
    between = counted(len(made.steps), "step")
    say(f"{bold('steps')}  {dim(f'{between} between them')}")
    for step in made.steps:
        mark = bad("✘") if step.error else good("✔")
        ended = legible(step.error) if step.error else _shown(step.result)
        say(_fitted(f"  {step.number:>4}  {mark} {legible(step.call)}", f"→ {ended}"))


def _show_runs(made: Difference) -> None:
    before, after = made.before, made.after
    for side, sign in ((before, bad("-")), (after, good("+"))):
        where = f"  {dim(legible(side.fork_of))}" if side.fork_of else ""
        say(f"{sign} {bold(legible(side.run.name))}  {legible(side.run.agent)}, {legible(side.run.state)}{where}")
    _show_changes("arguments", made.arguments, nothing="the same")
    say(f"{bold('steps')}  {counted(made.equal, 'completed step')} the same in both")
    for result in made.results:
        say(f"  {result.number:>4}  {doubtful('~')} {legible(result.call)} ended differently")
        say(f"        {bad('-')} {_shown(result.before)}")
        say(f"        {good('+')} {_shown(result.after)}")
    if made.parting is not None:
        _show_parting(made, made.parting)
    _show_changes("working state at the end", made.state, nothing="the same")
    _show_changes("outcome", made.outcome, nothing="the same")


def _show_parting(made: Difference, parting: Parting) -> None:
    say(f"  {parting.number:>4}  {doubtful('at this step they part')}")
    for sign, side, call in ((bad("-"), made.before, parting.before), (good("+"), made.after, parting.after)):
        say(f"        {sign} {legible(call) if call else dim(f'{legible(side.run.name)} makes no call here')}")


def _show_changes(title: str, found: list[ChangeObject], *, nothing: str) -> None:
    say(f"{bold(title)}{'' if found else f'  {dim(nothing)}'}")
    width = max((len(legible(change.name, 30)) for change in found), default=0)
    for change in found:
        values = {
            "added": _shown(change.after),
            "removed": _shown(change.before),
            "changed": f"{_shown(change.before)} → {_shown(change.after)}",
        }
        say(f"  {_MARKS[change.change]} {legible(change.name, 30):<{width}}  {values[change.change]}")


def _shown(value: Raw) -> str:
    """A value on one line, shortened."""
    text = msgspec.json.format(bytes(value), indent=0).decode()
    return legible(text, max(40, min(_SHOWN_CHARACTERS, columns() - 20)))


def _fitted(left: str, right: str) -> str:
    """A step and its result on one line, the result cut to the room there is."""
    room = max(20, columns() - len(click.unstyle(left)) - 2)
    return f"{left}  {dim(right if len(right) <= room else right[: room - 1] + '…')}"
