"""`perdure undo`: take back what a run did, newest first, each effect by the undo that its code registered."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Final

import click
from msgspec import Meta, Struct

from perdure import demo, events
from perdure.cli.app import load
from perdure.cli.contract import RunObject, run_object
from perdure.cli.mode import may_ask, mode
from perdure.cli.options import command, commands, confirm, json_option, looking, run_argument, store_option, yes_option
from perdure.cli.outcome import failed, own_output
from perdure.cli.progress import Progress
from perdure.cli.runs import find_run
from perdure.cli.screen import bold, dim, doubtful, good, print_json, say, tell
from perdure.cli.status import status_of
from perdure.cli.timeline import referred_runs
from perdure.cli.typed import app_option, app_words
from perdure.engine.call import spec_of
from perdure.engine.effect import EffectSpec
from perdure.engine.session import session
from perdure.engine.undo import NO_CODE, Effect, Left, Plan, effects_of, planned
from perdure.engine.undoing import cancelled_undoings, next_undo_id, refuse_unended, take_back, undone_run
from perdure.engine.whereabouts import undoing_of
from perdure.errors import UsageError
from perdure.records import RunState
from perdure.replay import Journal
from perdure.settings import current_settings
from perdure.telemetry.text import counted, legible, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    from perdure.records import Run

_NAMED: Final = 3


class EffectObject(Struct, frozen=True):
    """An effect of a run."""

    number: Annotated[int, Meta(description="the number of its step")]
    name: Annotated[str, Meta(description="its name")]
    call: Annotated[str, Meta(description="the call, as a person would write it")]
    why: Annotated[str, Meta(description="why it is not taken back; empty where it is")] = ""


class Undone(Struct, frozen=True):
    """What was taken back, or would be."""

    run: Annotated[RunObject, Meta(description="the run whose effects are meant")]
    undo: Annotated[RunObject | None, Meta(description="the run that takes them back; null where there is none")]
    taken_back: Annotated[list[EffectObject], Meta(description="effects taken back, or to be, newest first")]
    taken_back_before: Annotated[list[EffectObject], Meta(description="effects that were taken back before")]
    left: Annotated[list[EffectObject], Meta(description="effects that are not taken back")]
    others: Annotated[list[str], Meta(description="ids of runs it started, or that go on for it: undone by themselves")]
    is_done: Annotated[bool, Meta(description="false where it only says what would be taken back")]


@click.command()
@run_argument(required=True)
@app_option("its effects")
@click.option("--dry-run", is_flag=True, help="Only say what would be taken back, and what would not.")
@yes_option
@json_option(Undone)
@store_option
def undo(run: str, apps: tuple[str, ...], *, dry_run: bool, sure: bool, as_json: bool) -> None:
    """Take back the effects of RUN, newest first, with the undo each of them has: @perdure.effect(undo=…).

    RUN must have ended: completed, failed or cancelled. Its journal stays as it is: a run of its own takes back, each
    time as an effect, so that killed in the middle and started again it goes on, and nothing is taken back twice.
    """
    del as_json
    with looking() as store:
        meant = undone_run(store, find_run(store, run))
        refuse_unended(store, meant, stall_seconds=current_settings().stall_seconds)
        records = store.load_journal(meant.run_id)
        earlier = undoing_of(store, meant.run_id)
        cancelled = cancelled_undoings(store, meant)
        known = effects_of(meant, records, earlier=cancelled)
        others = [other for run_id in dict.fromkeys(referred_runs(records)) if (other := store.read_run(run_id))]
        if earlier is not None and earlier.state == RunState.COMPLETED:
            _report_over(known, earlier, Journal(store.load_journal(earlier.run_id)), others)
            return
    if not any(left.why == NO_CODE for left in known.left):
        _report_nothing(known, others)
        return
    specs = _effects_in(apps, meant)
    with looking() as store:
        plan = planned(meant, records, specs, load=store.load_blob, earlier=cancelled)
    _show_plan(plan, apps, earlier)
    _show_others(others)
    if dry_run or not plan.undoings:
        _answer(plan, others, is_done=False)
        return
    confirm(_question(plan), sure=sure, safe="nothing was undone.")
    _take_back(plan, again=command("undo", meant.name, *app_words(apps)))
    _answer(plan, others, is_done=True)


def _effects_in(apps: tuple[str, ...], run: Run) -> dict[str, EffectSpec]:
    """The effects that the named code has, by name: its own first, then those of all that it imported."""
    own = demo.agent_of(run.agent)
    if not apps and own is None:
        raise UsageError(
            f"How to take back what run {run.name} did is not known here: its code is not named.",
            safe="nothing was undone.",
            hint=commands().undo(run),
        )
    named = [load(app, said=f"--app {app}") for app in apps]
    if own is not None:
        named.append(sys.modules[own.__module__])
    found: dict[str, EffectSpec] = {}
    for spec in _specs(named):
        found.setdefault(spec.name, spec)
    others: dict[str, list[EffectSpec]] = {}
    for spec in dict.fromkeys(_specs(list(sys.modules.values()))):
        others.setdefault(spec.name, []).append(spec)
    for name, specs in others.items():
        if name not in found and len(specs) == 1:  # of two with one name nobody can tell which it was
            found[name] = specs[0]
    return found


def _specs(modules: Iterable[ModuleType]) -> Iterator[EffectSpec]:
    """The effects that modules name at their top, or in a class there."""
    for module in modules:
        for value in list(getattr(module, "__dict__", {}).values()):
            inside = list(vars(value).values()) if isinstance(value, type) else []
            for candidate in (value, *inside):
                function = getattr(candidate, "__func__", candidate) if inside else candidate
                spec = spec_of(function) if isinstance(function, FunctionType) else None
                if isinstance(spec, EffectSpec):
                    yield spec


def _report_over(known: Plan, earlier: Run, undoings: Journal, others: list[Run]) -> None:
    """Everything was taken back before: say by whom, and what was left then."""
    taken_back = [left for left in known.left if f"=undo {left.name}:{left.key}" in undoings.entries]
    left = tuple(_left_then(each) for each in known.left if each not in taken_back)
    if mode.as_json:
        _print(Plan(known.run, left=left, undone=known.undone), taken_back, others, is_done=True)
        return
    name = bold(legible(known.run.name))
    say(f"{name}  its effects were taken back by {legible(earlier.name)}: {command('show', earlier.name)}")
    _show_left(left)
    _show_others(others)


def _left_then(left: Left) -> Left:
    why = "it was not taken back then" if left.why == NO_CODE else left.why
    return Left(left.number, left.key, left.name, left.shown, why)


def _report_nothing(plan: Plan, others: list[Run]) -> None:
    """Nothing is left to do: say why."""
    if mode.as_json:
        _print(plan, (), others, is_done=False)
        return
    name = bold(legible(plan.run.name))
    if plan.undone:
        what = counted(len(plan.undone), "effect")
        say(f"{name}  {what} taken back before; nothing is left to undo")
    else:
        say(f"{name}  has done nothing that could be taken back")
    _show_left(plan.left)
    _show_others(others)


def _show_others(others: list[Run]) -> None:
    """The runs whose effects are their own."""
    for other in others:
        say(dim(f"  {legible(other.name)} ({legible(other.agent)}) is a run of its own: {command('undo', other.name)}"))


def _show_plan(plan: Plan, apps: tuple[str, ...], earlier: Run | None) -> None:
    if mode.as_json:
        return
    name = bold(legible(plan.run.name))
    is_begun = earlier is not None and earlier.state != RunState.CANCELLED
    going_on = f"  {dim(f'begun by {legible(earlier.name)}')}" if earlier is not None and is_begun else ""
    say(f"{name}  {plan.run.state}, {counted(len(plan.undoings), 'effect')} to take back, newest first{going_on}")
    for undoing in plan.undoings:
        how = getattr(undoing.spec.undo, "__name__", "undo")
        say(f"  {undoing.number:>4}  {legible(undoing.shown)}  {dim(f'by {legible(how)}')}")
    for effect in plan.undone:
        say(f"  {effect.number:>4}  {legible(effect.shown)}  {dim('taken back before')}")
    _show_left(plan.left)
    if any(left.why == NO_CODE for left in plan.left):
        where = legible(" and ".join(apps))
        say(f"  {dim(f'{where} does not have all of its effects; another --app may')}")


def _show_left(left: Iterable[Left]) -> None:
    for each in left:
        say(f"  {each.number:>4}  {legible(each.shown)}  {doubtful('not taken back')}: {legible(each.why)}")


def _question(plan: Plan) -> str:
    if may_ask():  # they stand above
        return f"Take back {counted(len(plan.undoings), 'effect')} of run {plan.run.name}?"
    calls = [legible(undoing.shown) for undoing in plan.undoings]
    return f"Take back {listed(calls, most=_NAMED)} of run {plan.run.name}?"


def _take_back(plan: Plan, *, again: str) -> None:
    """Execute the run that takes back, with its lines."""
    with looking() as store:
        run_id = next_undo_id(store, plan.run)
        journal = Journal(store.load_journal(run_id)) if store.read_run(run_id) is not None else None
    progress = Progress(journal, run_id=run_id)
    unsubscribe = events.subscribe(progress)
    try:
        with own_output():
            take_back(session(), plan)
    except Exception as error:
        if progress.ended is None or progress.ended.state != RunState.FAILED:
            raise
        raise failed(plan.run, error, steps=progress.ended.steps, again=again) from error
    finally:
        unsubscribe()
        progress.close()


def _answer(plan: Plan, others: list[Run], *, is_done: bool) -> None:
    if mode.as_json:
        _print(plan, plan.undoings, others, is_done=is_done)
    elif is_done:
        left = f"; {counted(len(plan.left), 'effect')} left as listed above" if plan.left else ""
        tell(f"  {good('taken back')}  {counted(len(plan.undoings), 'effect')} of {legible(plan.run.name)}{left}")


def _print(plan: Plan, taken_back: Iterable[Effect], others: list[Run], *, is_done: bool) -> None:
    with looking() as store:
        undoing = undoing_of(store, plan.run.run_id)
        print_json(
            Undone(
                run=run_object(plan.run, status_of(store, plan.run)),
                undo=None if undoing is None else run_object(undoing, status_of(store, undoing)),
                taken_back=_objects(taken_back),
                taken_back_before=_objects(plan.undone),
                left=[EffectObject(each.number, each.name, each.shown, each.why) for each in plan.left],
                others=[other.run_id for other in others],
                is_done=is_done,
            )
        )


def _objects(effects: Iterable[Effect]) -> list[EffectObject]:
    return [EffectObject(effect.number, effect.name, effect.shown) for effect in effects]
