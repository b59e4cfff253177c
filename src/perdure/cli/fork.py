"""`perdure fork`: a new run that has another run's journal up to a step, and goes on differently from there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final

import click
from msgspec import Meta, Raw, Struct

from perdure import codec
from perdure.cli.contract import RunObject, run_object
from perdure.cli.mode import may_ask
from perdure.cli.options import confirm, json_option, looking, run_argument, store_option, writing, yes_option
from perdure.cli.runs import find_run
from perdure.cli.screen import bold, dim, doubtful, print_json, say, say_next
from perdure.cli.status import status_of
from perdure.engine import fork as engine
from perdure.engine.whereabouts import is_undone, undoing_of
from perdure.errors import UsageError
from perdure.records import FINISHED
from perdure.replay import Journal
from perdure.settings import current_settings
from perdure.telemetry.text import counted, legible, listed

if TYPE_CHECKING:
    from perdure.engine.fork import Fork
    from perdure.records import Run
    from perdure.store.protocol import Store

_NAMED: Final = 3
_VALUE_CHARACTERS: Final = 60
_COLUMN: Final = 11


class OriginObject(Struct, frozen=True):
    """Where a fork comes from."""

    run_id: Annotated[str, Meta(description="the id of the run it is a fork of")]
    name: Annotated[str, Meta(description="that run's readable name")]
    at: Annotated[int, Meta(description="how many completed steps of that run it has")]


class RepeatedObject(Struct, frozen=True):
    """What the other run did after that step, and the fork will do again."""

    number: Annotated[int, Meta(description="the number of the step there")]
    name: Annotated[str, Meta(description="its name")]
    call: Annotated[str, Meta(description="the call, as a person would write it")]
    kind: Annotated[str, Meta(description="effect, or run where it started a run of its own")]


class Forked(Struct, frozen=True):
    """A fork that was made."""

    run: Annotated[RunObject, Meta(description="the new run")]
    forked_from: Annotated[OriginObject, Meta(description="where it comes from")]
    repeated: Annotated[list[RepeatedObject], Meta(description="what it will do again")]
    in_doubt: Annotated[list[str], Meta(description="effects that are in doubt in both, under the same keys")]
    asked_anew: Annotated[list[str], Meta(description="questions that were open there, which it asks itself")]
    arguments: Annotated[list[str], Meta(description="the arguments that were replaced")]
    state: Annotated[list[str], Meta(description="what was set in its working state right after that step")]


@click.command()
@run_argument(required=True)
@click.option("--at", "at_step", metavar="N", type=click.IntRange(0), help="Right after step N; 0 is the beginning.")
@click.option(
    "--set", "given", metavar="NAME=VALUE", multiple=True, help="Another argument, or working state; JSON or text."
)
@yes_option
@json_option(Forked)
@store_option
def fork(run: str, at_step: int | None, given: tuple[str, ...], *, sure: bool, as_json: bool) -> None:
    """Make a new run out of RUN: what it had completed by step N stands, what came after is done again.

    Without --at, everything completed stands. RUN itself is not touched, and may be running. Effects after step N will
    be performed again, so they are named, and you are asked. --set replaces an argument of that name, where the run has
    one; otherwise it sets the working state right after step N.
    """
    values = _values(given)
    with looking() as store:
        original = find_run(store, run)
        planned = engine.planned(
            store, original, at=at_step, given=values, stall_seconds=current_settings().stall_seconds
        )
        is_undone = _is_undone(store, planned)
    if not as_json:
        _show_consequences(planned, is_undone=is_undone)
    if planned.repeated or planned.restored or is_undone:
        confirm(_question(planned, is_undone=is_undone), sure=sure, safe="nothing was forked.")
    with writing() as store:
        made = engine.accept(store, planned)
    with looking() as store:
        if as_json:
            print_json(_object(store, planned, made))
        else:
            _show(store, planned, made, values)


def _values(texts: tuple[str, ...]) -> dict[str, Raw]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals):
            raise UsageError(
                f"--set {legible(text, 60)!r} names no value.",
                safe="nothing was forked.",
                hint='--set plan=train, or --set \'plan={"by": "train"}\'',
            )
        found[name] = _sealed(name, value)
    return found


def _sealed(name: str, text: str) -> Raw:
    """A value as records hold it: what is JSON is taken as such, anything else as a text."""
    try:
        sealed = json.dumps(json.loads(text), ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        sealed = json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")
    try:
        codec.unseal(sealed)
    except ValueError as error:
        raise UsageError(
            f"--set {legible(name, 60)}: {legible(text, 60)} cannot be stored: {error}.",
            safe="nothing was forked.",
            hint="give plain JSON, or a text",
        ) from error
    return Raw(sealed)


def _is_undone(store: Store, fork: Fork) -> bool:
    """Whether effects that the fork takes as done were taken back since."""
    undoing = undoing_of(store, fork.original.run_id)
    journal = Journal(fork.records)
    has_effects = any(entry.kind == "effect" and engine.has_happened(entry) for entry in journal.entries.values())
    if not has_effects:
        return False
    last = store.load_journal(fork.original.run_id)[-1]
    return undoing is not None or '"undone":true' in last.body


def _question(fork: Fork, *, is_undone: bool) -> str:
    if may_ask():  # what it means stands above
        return f"Fork {fork.original.name} at step {fork.origin.at}?"
    calls = [legible(again.shown) for again in fork.repeated]
    what = f", which will do again: {listed(calls, most=_NAMED)}" if calls else ""
    if is_undone:
        what = f", whose effects were taken back since{what.replace(', which', '; the fork', 1) if what else ''}"
    return f"Fork {fork.original.name} at step {fork.origin.at}{what}?"


def _show_consequences(fork: Fork, *, is_undone: bool) -> None:
    name = legible(fork.original.name)
    if fork.repeated:
        say(f"{doubtful('again')}  after step {fork.origin.at} {name} did this, and the fork will do it again:")
        for again in fork.repeated:
            what = "a run of its own" if again.kind == "run" else "effect, under a new key"
            say(f"  {again.number:>4}  {legible(again.shown)}  {dim(what)}")
    if is_undone:
        say(f"{doubtful('undone')}  effects of {name} were taken back since; the fork takes them as done")
    for words in fork.restored:
        say(f"{doubtful('shared')}  {legible(words)} will be put back to what it was at step {fork.origin.at}")


def _show(store: Store, fork: Fork, made: Run, values: dict[str, Raw]) -> None:
    original = legible(fork.original.name)
    say(f"{bold(made.name)}  fork of {original} at step {fork.origin.at} of {fork.steps}")
    stands = f"{counted(made.steps, 'step')}, not repeated" if made.steps else "nothing: it begins anew"
    lines = [("keeps", stands)]
    lines += [("in doubt", f"{legible(shown)}, as in {original}, under the same key") for shown in fork.in_doubt]
    lines += [("asks anew", legible(text)) for text in fork.asked_anew]
    for name, value in values.items():
        shown = f"{legible(name)} = {legible(bytes(value).decode(), _VALUE_CHARACTERS)}"
        is_argument = name in fork.origin.arguments
        lines.append(("argument", shown) if is_argument else ("state", f"{shown}, right after step {fork.origin.at}"))
    for word, text in lines:
        say(f"  {dim(f'{word:<{_COLUMN}}')}{text}")
    if fork.origin.arguments and fork.origin.at:
        say(f"  {doubtful('note')} steps recorded with other arguments will park it; --at 0 repeats them instead")
    if fork.original.state not in FINISHED and not is_undone(store, fork.original):
        say(f"  {dim(f'{original} is unfinished: it can go on as well')}")
    say_next(status_of(store, made).next, margin="")


def _object(store: Store, fork: Fork, made: Run) -> Forked:
    origin = fork.origin
    changed = {name for change in origin.changes for name in change.state}
    return Forked(
        run=run_object(made, status_of(store, made)),
        forked_from=OriginObject(origin.run_id, origin.name, origin.at),
        repeated=[RepeatedObject(again.number, again.name, again.shown, again.kind) for again in fork.repeated],
        in_doubt=list(fork.in_doubt),
        asked_anew=list(fork.asked_anew),
        arguments=list(origin.arguments),
        state=sorted(changed),
    )
