"""`perdure settle`: a person says what became of an effect in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import click
import msgspec
from msgspec import Meta, Raw, Struct

from perdure import clock
from perdure.adapters.http.matching import TOOL
from perdure.bodies import NULL
from perdure.cli.contract import RunObject, run_object
from perdure.cli.control import standing
from perdure.cli.options import (
    by_option,
    command,
    confirm,
    json_option,
    looking,
    run_argument,
    store_option,
    writing,
    yes_option,
)
from perdure.cli.runs import find_run
from perdure.cli.screen import bold, dim, print_json, say, say_next
from perdure.cli.status import resume_command, settle_command
from perdure.cli.typed import json_value
from perdure.cli.wording import OUTCOMES
from perdure.engine.control import who
from perdure.engine.mailbox import Letter
from perdure.errors import UsageError
from perdure.records import FINISHED, Mail, Run, RunState
from perdure.replay import Journal
from perdure.status import OpenEffect, open_effects
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from perdure.store.protocol import Store

_NO_RESULT: Final = "\0"
"""What click puts where --happened was given without a result: no JSON text begins with it."""

_CONSEQUENCES: Final = {
    "happened": "a resume takes that for its result and goes on; it is not performed again",
    "did_not_happen": "a resume performs it, and goes on",
    "fail": "a resume ends the run there, as failed",
}

_FORGOTTEN: Final = "; what it changed in memory is not known, and is not put back"
"""Said of a tool of a script: its process died before that was recorded."""

_NO_CONSEQUENCE: Final = "nothing: the run is over, and the verdict is kept with it"


class Settled(Struct, frozen=True):
    """A verdict on an effect in doubt, and where that leaves the run."""

    step: Annotated[str, Meta(description="the effect's name")]
    number: Annotated[int, Meta(description="its number in the run")]
    outcome: Annotated[str, Meta(description="happened, did_not_happen or fail")]
    result: Annotated[Raw, Meta(description="what it returned, where it happened; else null")]
    by: Annotated[str, Meta(description="whose verdict it is")]
    consequence: Annotated[str, Meta(description="what a resume will do, in words")]
    still_in_doubt: Annotated[int, Meta(description="how many effects of the run are without a verdict")]
    run: Annotated[RunObject, Meta(description="the run after that")]


@click.command()
@run_argument(required=True)
@click.argument("step", required=False)
@click.option(
    "--happened",
    metavar="[JSON]",
    is_flag=False,
    flag_value=_NO_RESULT,
    default=None,
    help="It took place; JSON is what it returned (null where none is given).",
)
@click.option("--did-not-happen", is_flag=True, help="It did not take place: a resume performs it.")
@click.option("--fail", "fails", is_flag=True, help="Neither: the run fails at this step.")
@yes_option
@by_option
@json_option(Settled)
@store_option
def settle(
    run: str,
    step: str | None,
    *,
    happened: str | None,
    did_not_happen: bool,
    fails: bool,
    sure: bool,
    by: str,
    as_json: bool,
) -> None:
    """Say what became of an effect in doubt; nothing is performed until the run is resumed.

    STEP is its name, or its number in `perdure show RUN`; it may be left out where only one is in doubt.
    To replace a verdict that is not used yet, you are asked, or say --yes.
    """
    is_clear = (happened is not None) + did_not_happen + fails == 1
    letter = _letter(happened, did_not_happen=did_not_happen) if is_clear else None
    with looking() as store:
        found = find_run(store, run)
        effects = open_effects(store, found, Journal(store.load_journal(found.run_id)))
        effect = _chosen(found, effects, step)
    if letter is None:
        raise _unclear(found, effect, effects)
    letter = msgspec.structs.replace(letter, attempt=effect.attempt)
    by = legible(by or who())
    is_repeated = effect.letter == letter
    if not is_repeated:
        if effect.letter is not None:
            earlier = f"the unused verdict of {legible(effect.by)} ({_verdict_words(effect.letter)})"
            confirm(f"Replace {earlier} by: {_verdict_words(letter)}?", sure=sure, safe="nothing was recorded.")
        _post(found, effect, letter, by)
    after, status = standing(found)
    others = [other for other in effects if other.letter is None and other.key != effect.key]
    if as_json:
        verdict = (letter.outcome, letter.value, effect.by if is_repeated else by, _consequence(found, effect, letter))
        print_json(Settled(effect.name, effect.number, *verdict, len(others), run_object(after, status)))
        return
    _say_verdict(found, effect, letter, by)
    if others:
        say(f"  still in doubt: {others[0].number} {legible(others[0].shown)}")
        say_next(settle_command(found, others[0], effects))
    elif status.state == RunState.RUNNING:
        say(f"  {status.cause}: it takes this up when it reaches the step")
    elif found.state not in FINISHED:
        say_next(resume_command(found))


def _consequence(run: Run, effect: OpenEffect, letter: Letter) -> str:
    if run.state in FINISHED:
        return _NO_CONSEQUENCE
    is_forgotten = letter.outcome == "happened" and effect.key.startswith(TOOL)
    return _CONSEQUENCES[letter.outcome] + (_FORGOTTEN if is_forgotten else "")


def _say_verdict(run: Run, effect: OpenEffect, letter: Letter, by: str) -> None:
    name = f"{bold(run.name)}  {effect.number} {legible(effect.name)}"
    if effect.letter == letter:
        say(f"{name} was already settled like that by {legible(effect.by)}")
    else:
        result = f", result {legible(bytes(letter.value).decode(), 60)}" if letter.outcome == "happened" else ""
        say(f"{name}: {OUTCOMES[letter.outcome]}{result} (by {by})")
    if effect.letter is not None and effect.letter != letter:
        earlier = _verdict_words(effect.letter)
        say(f"  the earlier verdict ({earlier}, by {legible(effect.by)}) was not used yet: the newest counts")
    say(f"  {dim('then:')} {_consequence(run, effect, letter)}")


def _letter(happened: str | None, *, did_not_happen: bool) -> Letter:
    if did_not_happen:
        return Letter(outcome="did_not_happen")
    if happened is None:
        return Letter(outcome="fail")
    return Letter(outcome="happened", value=_result(happened))


def _unclear(run: Run, effect: OpenEffect, effects: list[OpenEffect]) -> UsageError:
    return UsageError(
        f"Say one of --happened [JSON], --did-not-happen, --fail of {effect.number} {legible(effect.shown)}.",
        safe="nothing was recorded.",
        hint=f"look outside whether it took place, then: {settle_command(run, effect, effects)}",
    )


def _result(text: str) -> Raw:
    if text == _NO_RESULT:
        return NULL
    return Raw(msgspec.json.encode(json_value(text, of="--happened")))


def _chosen(run: Run, effects: list[OpenEffect], step: str | None) -> OpenEffect:
    matches = [effect for effect in effects if step in (None, effect.name)] or [
        effect for effect in effects if str(effect.number) == step
    ]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(f"{effect.number} {legible(effect.name)}" for effect in matches or effects)
    if step is None:
        raise _unnamed(run, effects, known)
    if matches:
        message = f"{len(matches)} effects named {legible(step)} of run {run.name} are in doubt: {known}."
        raise UsageError(message, safe="nothing was recorded.", hint="name the one you mean by its number")
    message = f"Step {legible(step)!r} of run {run.name} is not in doubt"
    raise UsageError(
        f"{message}; in doubt: {known}." if effects else f"{message}; nothing in this run is.",
        safe="nothing was recorded.",
        hint=settle_command(run, effects[0], effects) if effects else command("show", run.name),
    )


def _unnamed(run: Run, effects: list[OpenEffect], known: str) -> UsageError:
    if not effects:
        return UsageError(
            f"Nothing in run {run.name} is in doubt.", safe="nothing was recorded.", hint=command("show", run.name)
        )
    return UsageError(
        f"{len(effects)} effects of run {run.name} are in doubt: {known}.",
        safe="nothing was recorded.",
        hint=settle_command(run, effects[0], effects),
    )


def _post(run: Run, effect: OpenEffect, letter: Letter, by: str) -> None:
    body = msgspec.json.encode(letter).decode()
    mail = Mail(0, run.run_id, "verdict", effect.key, body, by, clock.wall_seconds())
    with writing() as store:
        is_first = not any((other.kind, other.key) == ("verdict", effect.key) for other in store.read_mail(run.run_id))
        is_second = effect.letter is None and _verdict_on(store, run, effect) is not None
        if is_second or store.post(mail, once=is_first).kind == "refused":
            raise _came_second(run, effect, _verdict_on(store, run, effect) or effect)


def _verdict_on(store: Store, run: Run, effect: OpenEffect) -> OpenEffect | None:
    """The effect as it is now, with a verdict that the run has not used; None where there is none."""
    effects = open_effects(store, run, Journal(store.load_journal(run.run_id)))
    return next((other for other in effects if other.key == effect.key and other.letter is not None), None)


def _came_second(run: Run, effect: OpenEffect, now: OpenEffect) -> UsageError:
    """Somebody else settled it while this verdict was on its way: nobody has weighed the two."""
    what = f": {_verdict_words(now.letter)}, by {legible(now.by)}" if now.letter is not None else ""
    return UsageError(
        f"{effect.number} {legible(effect.name)} of run {run.name} was settled in this very moment{what}.",
        safe="that verdict stands, and yours was not used.",
        hint=f"{command('show', run.name)}; the same command again replaces it, with --yes",
    )


def _verdict_words(letter: Letter) -> str:
    return letter.outcome.replace("_", " ")
